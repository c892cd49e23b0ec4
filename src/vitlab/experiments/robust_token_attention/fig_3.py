"""TAPADL Fig. 3: attention maps of the last layer with TAP, with ADL and with both.

The paper has pictures only; the claims are its sentences about them. "Spread over more tokens" is measured by the Gini
coefficient, the diagonal by the attention of a token to itself, its width by the attention to the 3×3 neighbourhood. At
`small` ViT-Ti on CIFAR-100 replaces FAN-B-Hybrid.
"""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict
from vitlab.experiments.robust_token_attention._checks import better
from vitlab.experiments.robust_token_attention._numbers import (
    DIVERSITY,
    GINI,
    MAPS,
    OVERFOCUS,
    ROW_SIMILARITY,
    SELF_MASS,
    Number,
)
from vitlab.experiments.robust_token_attention._variants import FOUR, TITLES, jobs

TITLE = "TAPADL Fig. 3: attention maps with TAP and ADL"

PAPER = [
    Published(f"+ {title}" if title else "FAN-B-Hybrid", "attention map of the last layer", None)
    for title in TITLES.values()
]


def _around(found: Measurement) -> float:
    """Attention of the last layer to the eight neighbours of a token, without the token itself."""
    near, own = (np.asarray(found.values[name])[-1] for name in ("neighbourhood_mass", "self_mass"))
    return float(np.nanmean(near - own))


#: Attention of the last layer to the eight neighbours of a token.
AROUND = Number(("attention_diversity",), _around, unit="")
_CHECKS = [
    better(
        Claim("gini_tap", "TAP distributes the attention of the last layer over more tokens", source="Sec. 4.1.2"),
        GINI,
        "plain",
        "tap",
    ),
    better(
        Claim("self_adl", "ADL raises the attention of tokens to themselves (diagonal)", source="Fig. 3, Sec. 4.1.2"),
        SELF_MASS,
        "plain",
        "adl",
    ),
    better(
        Claim("rows_adl", "ADL makes the rows of attention less similar", source="Fig. 3"),
        ROW_SIMILARITY,
        "plain",
        "adl",
    ),
    better(
        Claim(
            "around_tap_adl_against_adl",
            "TAP expands the diagonal of ADL to the neighbours of a token",
            source="Fig. 3, Sec. 4.1.2",
        ),
        AROUND,
        "adl",
        "tap_adl",
    ),
]
CLAIMS = [each.claim for each in _CHECKS]


def plan(scale: Scale) -> list[Job]:
    """All four variants; maps of one network for the picture."""
    return jobs(scale, FOUR, (OVERFOCUS, DIVERSITY)) + jobs(scale, FOUR, (MAPS,), seeds=1)


def check(results: Results) -> list[Verdict]:
    """Networks are paired by seed."""
    return [each.judge(results) for each in _CHECKS]
