"""HDVW Fig. D.4: lesion study of ResNet, ViT, PiT and Swin.

ViT has one stage: its first and last blocks are compared.
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import claims, own, tested, verdicts
from vitlab.experiments.how_vits_work._feature_maps import lesion
from vitlab.experiments.how_vits_work._jobs import jobs, released
from vitlab.experiments.how_vits_work._networks import RELEASED_CIFAR100, arms
from vitlab.experiments.how_vits_work._shared import POINTS

TITLE = "HDVW Fig. D.4: Convs at the beginning and MSAs at the end of stages matter most"

_VITS = {"vit_tiny": "ViT", "pit_tiny": "PiT", "swin_tiny": "Swin"}
_ARMS = ("resnet50", *_VITS)

PAPER = [Published(network, "decrease in accuracy without a unit", None) for network in ("ResNet", *_VITS.values())]

_CHECKS = [
    tested(
        "resnet_conv",
        "Removing the first Conv of a stage of ResNet costs more accuracy than the last",
        own(lesion("Conv", "start", "end"), "resnet50"),
        "App. D",
        smallest=POINTS,
    ),
    *(
        tested(
            f"{arm}_msa",
            f"Removing the last MSA of a stage of {network} costs more accuracy than the first",
            own(lesion("MSA", "end", "start"), arm),
            "App. D",
            smallest=POINTS,
        )
        for arm, network in _VITS.items()
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Four networks on CIFAR-100; HDVW's own weights at `released`."""
    if scale == "released":
        return released({arm: RELEASED_CIFAR100[arm] for arm in _ARMS}, "lesion")
    return jobs(scale, arms(_ARMS), "lesion")


def check(results: Results) -> list[Verdict]:
    """Contrasts inside one network, by run or by part of the images."""
    return verdicts(_CHECKS, results)
