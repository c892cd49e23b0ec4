"""Attention rollout: relevance maps of some images, and entropy by layer."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure
from vitlab.reporting.relevance_maps import relevance_figures


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Relevance maps, and their entropy by layer."""
    return relevance_figures(measurements, "attention rollout")
