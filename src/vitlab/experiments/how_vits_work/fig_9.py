"""HDVW Fig. 9: variance of feature map points in ResNet and ViT."""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import claims, own, tested, verdicts
from vitlab.experiments.how_vits_work._feature_maps import depth_trend, stage_peak, variance
from vitlab.experiments.how_vits_work._jobs import jobs, released
from vitlab.experiments.how_vits_work._networks import RELEASED_CIFAR100, arms

TITLE = "HDVW Fig. 9: MSAs reduce the variance of feature maps, Convs and MLPs increase it"

_ARMS = ("resnet50", "vit_tiny")

PAPER = [Published(network, "feature map variance by depth", None) for network in ("ResNet", "ViT")]

_CHECKS = [
    tested("msa", "MSAs in ViT reduce the variance", own(variance("MSA"), "vit_tiny", -1), "Fig. 9, Sec. 3"),
    tested("mlp", "MLPs in ViT increase the variance", own(variance("MLP"), "vit_tiny"), "Sec. 3"),
    tested("conv", "Convs in ResNet increase the variance", own(variance("Conv"), "resnet50"), "Fig. 9, Sec. 3"),
    tested(
        "accumulates_vit",
        "The variance in ViT increases with depth",
        own(depth_trend(), "vit_tiny"),
        "Sec. 3, first pattern",
    ),
    tested(
        "accumulates_resnet",
        "The variance in ResNet increases with depth",
        own(depth_trend(), "resnet50"),
        "Sec. 3, first pattern",
    ),
    tested(
        "peaks",
        "The variance in ResNet is larger at the end of a stage than inside it",
        own(stage_peak(), "resnet50"),
        "Sec. 3, second pattern",
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """ResNet-50 and ViT-Ti on CIFAR-100; HDVW's own weights at `released`."""
    if scale == "released":
        return released({arm: RELEASED_CIFAR100[arm] for arm in _ARMS}, "variance")
    return jobs(scale, arms(_ARMS), "variance")


def check(results: Results) -> list[Verdict]:
    """Changes relative to the mean variance of the network, by run or by part of the images."""
    return verdicts(_CHECKS, results)
