"""HDVW Fig. F.1: calibration (a) and Hessian spectra (b) with strong and weak augmentation, on CIFAR-100."""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import Check, claims, more, own, tested, verdicts
from vitlab.experiments.how_vits_work._jobs import jobs
from vitlab.experiments.how_vits_work._networks import network
from vitlab.experiments.how_vits_work._readings import LOG_SIZE, NEP, OVERCONFIDENCE
from vitlab.experiments.how_vits_work._shared import EARLY, LOGARITHM, NEGATIVE, POINTS

TITLE = "HDVW Fig. F.1: strong augmentation makes predictions underconfident and flattens the loss"

_NAMES = {"resnet50": "ResNet", "vit_tiny": "ViT"}

PAPER = [
    Published(f"{name}, {augmentation} augmentation", column, None)
    for name in _NAMES.values()
    for augmentation in ("strong", "weak")
    for column in ("reliability diagram", "Hessian max eigenvalue spectrum")
]


def _checks(arm: str, name: str) -> list[Check]:
    strong, weak = f"{arm}, strong", f"{arm}, weak"
    return [
        tested(
            f"{arm}_underconfident",
            f"With strong augmentation {name} is underconfident (minus the signed calibration error)",
            own(OVERCONFIDENCE, strong, -1),
            "Fig. F.1a",
            smallest=POINTS,
        ),
        tested(
            f"{arm}_overconfident",
            f"With weak augmentation {name} is overconfident (signed calibration error)",
            own(OVERCONFIDENCE, weak),
            "Fig. F.1a, App. F.1",
            smallest=POINTS,
        ),
        tested(
            f"{arm}_flat",
            f"Strong augmentation reduces the eigenvalues of {name} in the early phase (log of the mean size)",
            more(LOG_SIZE, f"{weak}{EARLY}", f"{strong}{EARLY}"),
            "Fig. F.1b, App. F.2",
            smallest=LOGARITHM,
        ),
        tested(
            f"{arm}_negative",
            f"Strong augmentation raises the proportion of negative eigenvalues of {name} in the early phase (NEP)",
            more(NEP, f"{strong}{EARLY}", f"{weak}{EARLY}"),
            "Fig. F.1b, App. F.2",
            smallest=NEGATIVE,
        ),
    ]


_CHECKS = [check for arm, name in _NAMES.items() for check in _checks(arm, name)]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """ResNet-50 and ViT-Ti on CIFAR-100 with both augmentations."""
    networks = {f"{arm}, {kind}": network(arm, augmentation=kind) for arm in _NAMES for kind in ("strong", "weak")}
    return jobs(scale, networks, "calibration", "hessian, early")


def check(results: Results) -> list[Verdict]:
    """Differences paired by seed."""
    return verdicts(_CHECKS, results)
