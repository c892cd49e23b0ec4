"""Every family's tiny model."""

from __future__ import annotations

from cases import CASES as VIT_CASES
from cases import Case, alternet, hierarchical, more, others, rvt_fan, small, variants

CASES: list[Case] = [
    *VIT_CASES,
    *variants.CASES,
    *hierarchical.CASES,
    *others.CASES,
    *alternet.CASES,
    *rvt_fan.CASES,
    *small.CASES,
    *more.CASES,
]
