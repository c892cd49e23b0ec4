"""HDVW Fig. D.3: feature map similarities of ResNet, ViT, PiT and Swin."""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import claims, more, own, tested, verdicts
from vitlab.experiments.how_vits_work._feature_maps import MEAN_SIMILARITY, STAGE_DROP
from vitlab.experiments.how_vits_work._jobs import jobs, released
from vitlab.experiments.how_vits_work._networks import RELEASED_CIFAR100, arms

TITLE = "HDVW Fig. D.3: multi-stage ViTs have a block structure, vanilla ViT does not"

_STAGED = {"resnet50": "ResNet", "pit_tiny": "PiT", "swin_tiny": "Swin"}
_ARMS = ("vit_tiny", *_STAGED)

PAPER = [Published(network, "feature map similarity by pair of layers", None) for network in ("ViT", *_STAGED.values())]

_CHECKS = [
    *(
        tested(
            f"{arm}_blocks",
            f"CKA of neighbouring blocks of {network} is lower across a stage boundary than inside stages",
            own(STAGE_DROP, arm),
            "Fig. D.3, App. D",
        )
        for arm, network in _STAGED.items()
    ),
    *(
        tested(
            f"vit_more_uniform_than_{arm}",
            f"The blocks of ViT are more similar to each other than those of {network}",
            more(MEAN_SIMILARITY, "vit_tiny", arm),
            "App. D",
        )
        for arm, network in _STAGED.items()
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Four networks on CIFAR-100; HDVW's own weights at `released`."""
    if scale == "released":
        return released({arm: RELEASED_CIFAR100[arm] for arm in _ARMS}, "cka")
    return jobs(scale, arms(_ARMS), "cka")


def check(results: Results) -> list[Verdict]:
    """Mean similarities, by run or by part of the images."""
    return verdicts(_CHECKS, results)
