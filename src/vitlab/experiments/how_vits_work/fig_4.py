"""HDVW Fig. 4: negative and positive Hessian eigenvalues of ResNet and ViT, and of ViT with 6 % of the data.

An epoch of 6 % of the data has fewer steps: the paper does not say whether its early phase is counted in epochs or
in steps.
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import claims, more, summed, tested, verdicts
from vitlab.experiments.how_vits_work._jobs import jobs
from vitlab.experiments.how_vits_work._networks import arms, network
from vitlab.experiments.how_vits_work._readings import LOG_APE, NEP
from vitlab.experiments.how_vits_work._shared import EARLY, LOGARITHM, NEGATIVE

TITLE = "HDVW Fig. 4: ViT has many negative and small positive Hessian eigenvalues"

PAPER = [
    Published(network, "Hessian max eigenvalue spectrum", None) for network in ("ResNet", "ViT", "ViT, 6 % of data")
]

_RESNET, _VIT = f"resnet50{EARLY}", f"vit_tiny{EARLY}"
_RESNET_6, _VIT_6 = f"resnet50, 6 %{EARLY}", f"vit_tiny, 6 %{EARLY}"

_CHECKS = [
    tested(
        "negative",
        "ViT has a larger proportion of negative eigenvalues (NEP) than ResNet in the early phase",
        more(NEP, _VIT, _RESNET),
        "Fig. 4, left",
        smallest=NEGATIVE,
    ),
    tested(
        "small_positive",
        "The positive eigenvalues of ViT are smaller than those of ResNet in the early phase (log APE)",
        more(LOG_APE, _RESNET, _VIT),
        "Fig. 4, right",
        smallest=LOGARITHM,
    ),
    tested(
        "data_convexifies",
        "All training images suppress negative eigenvalues of ViT, compared with 6 % of them",
        more(NEP, _VIT_6, _VIT),
        "Fig. 4, dotted line",
        smallest=NEGATIVE,
    ),
    tested(
        "little_benefit",
        "Data reduce the NEP of ViT more than that of ResNet",
        summed((1, NEP, _VIT_6), (-1, NEP, _VIT), (-1, NEP, _RESNET_6), (1, NEP, _RESNET)),
        "Sec. 2",
        smallest=NEGATIVE,
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """ResNet-50 and ViT-Ti on CIFAR-100 and on 6 % of it, early in training."""
    few = {f"{name}, 6 %": network(name, fraction=0.06) for name in ("resnet50", "vit_tiny")}
    return jobs(scale, arms(("resnet50", "vit_tiny")) | few, "hessian, early")


def check(results: Results) -> list[Verdict]:
    """Differences paired by seed."""
    return verdicts(_CHECKS, results)
