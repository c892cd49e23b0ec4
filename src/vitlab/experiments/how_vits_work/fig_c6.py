"""HDVW Fig. C.6: NEP and APE of ViT against the number of dimensions per head.

The dimensions are not printed: our choice, with three heads. The depth is
halved, as in the paper. The theory predicts an exponent of −1/2 (Eq. 5).
"""

from __future__ import annotations

import math

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import claims, tested, trend, verdicts
from vitlab.experiments.how_vits_work._jobs import jobs
from vitlab.experiments.how_vits_work._networks import vit
from vitlab.experiments.how_vits_work._readings import LOG_APE, NEP
from vitlab.experiments.how_vits_work._shared import EARLY, NEGATIVE

TITLE = "HDVW Fig. C.6: high embedding dimensions per head convexify and flatten the loss"

_DIMENSIONS = (16, 32, 64, 128)
_EXPONENT = -0.796

PAPER = [
    Published("APE", "exponent of the number of dimensions per head", _EXPONENT),
    Published("NEP", "by the number of dimensions per head", None),
]

_POSITIONS = {f"{each} dimensions{EARLY}": math.log(each) for each in _DIMENSIONS}

_CHECKS = [
    tested(
        "nep",
        "NEP falls with the number of dimensions per head (slope over its logarithm)",
        trend(NEP, _POSITIONS, sign=-1),
        "Fig. C.6, left",
        smallest=NEGATIVE,
    ),
    tested(
        "ape",
        "APE falls as a power of the number of dimensions per head (minus the exponent)",
        trend(LOG_APE, _POSITIONS, sign=-1),
        "Fig. C.6, left; App. C",
        paper=-_EXPONENT,
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """ViTs of half depth on CIFAR-100, early in training."""
    return jobs(
        scale, {f"{each} dimensions": vit(rate=8680, depth=6, head_dim=each) for each in _DIMENSIONS}, "hessian, early"
    )


def check(results: Results) -> list[Verdict]:
    """Slopes by seed."""
    return verdicts(_CHECKS, results)
