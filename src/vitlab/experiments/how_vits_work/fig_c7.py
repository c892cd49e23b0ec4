"""HDVW Fig. C.7: training NLL (a), loss landscapes (b) and Hessian spectra (c) of large and small models."""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import Check, claims, more, tested, verdicts
from vitlab.experiments.how_vits_work._jobs import jobs
from vitlab.experiments.how_vits_work._networks import arms
from vitlab.experiments.how_vits_work._readings import LOG_SIZE, NLL_TRAIN, RISE
from vitlab.experiments.how_vits_work._shared import EARLY, LATE, LOGARITHM

TITLE = "HDVW Fig. C.7: the loss landscapes of large models"

#: Small and large model of each kind.
_PAIRS = {"ResNet": ("resnet50", "resnet101"), "ViT": ("vit_tiny", "vit_small")}

PAPER = [
    Published(name, column, None)
    for pair in _PAIRS.values()
    for name in pair
    for column in ("NLL_train", "loss landscape", "Hessian spectrum, early", "Hessian spectrum, late")
]


def _checks(kind: str, small: str, large: str) -> list[Check]:
    late = (small, large) if kind == "ViT" else (large, small)
    minimum = "flatter" if kind == "ViT" else "sharper"
    return [
        tested(
            f"{kind}_nll",
            f"The large {kind} reaches a lower NLL_train than the small one",
            more(NLL_TRAIN, small, large),
            "Fig. C.7a",
        ),
        tested(
            f"{kind}_landscape",
            f"The loss of the large {kind} rises more to the boundary of the plane than that of the small one",
            more(RISE, large, small),
            "Fig. C.7b",
        ),
        tested(
            f"{kind}_early",
            f"The eigenvalues of the large {kind} are smaller in the early phase (log of the mean size)",
            more(LOG_SIZE, f"{small}{EARLY}", f"{large}{EARLY}"),
            "Fig. C.7c",
            smallest=LOGARITHM,
        ),
        tested(
            f"{kind}_late",
            f"In the late phase the large {kind} has a {minimum} minimum (log of the mean size of eigenvalues)",
            more(LOG_SIZE, *(f"{name}{LATE}" for name in late)),
            "Fig. C.7, caption",
            smallest=LOGARITHM,
        ),
    ]


_CHECKS = [check for kind, pair in _PAIRS.items() for check in _checks(kind, *pair)]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """ResNet-50 and -101, ViT-Ti and -S on CIFAR-100."""
    networks = arms(name for pair in _PAIRS.values() for name in pair)
    return jobs(scale, networks, "fit", "landscape", "hessian, early", "hessian, late")


def check(results: Results) -> list[Verdict]:
    """Differences paired by seed."""
    return verdicts(_CHECKS, results)
