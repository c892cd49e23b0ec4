"""HDVW Fig. C.5: NEP and APE of ViT against the number of heads.

The heads are not printed: our choice, with heads of 64 channels. The depth is
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

TITLE = "HDVW Fig. C.5: multi-heads convexify and flatten the loss"

_HEADS = (1, 2, 4, 8)
_EXPONENT = -0.562

PAPER = [
    Published("APE", "exponent of the number of heads", _EXPONENT),
    Published("NEP", "by the number of heads", None),
]

_POSITIONS = {f"{each} heads{EARLY}": math.log(each) for each in _HEADS}

_CHECKS = [
    tested(
        "nep",
        "NEP falls with the number of heads (slope over its logarithm)",
        trend(NEP, _POSITIONS, sign=-1),
        "Fig. C.5, left",
        smallest=NEGATIVE,
    ),
    tested(
        "ape",
        "APE falls as a power of the number of heads (minus the exponent)",
        trend(LOG_APE, _POSITIONS, sign=-1),
        "Fig. C.5, left; App. C",
        paper=-_EXPONENT,
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """ViTs of half depth on CIFAR-100, early in training."""
    return jobs(scale, {f"{each} heads": vit(rate=8680, depth=6, heads=each) for each in _HEADS}, "hessian, early")


def check(results: Results) -> list[Verdict]:
    """Slopes by seed."""
    return verdicts(_CHECKS, results)
