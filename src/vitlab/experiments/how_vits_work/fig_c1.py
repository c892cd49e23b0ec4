"""HDVW Fig. C.1: training NLL against test error on CIFAR-10 (a) and ImageNet (b)."""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import claims, more, slope, tested, verdicts
from vitlab.experiments.how_vits_work._jobs import jobs, released
from vitlab.experiments.how_vits_work._networks import RELEASED, imagenet, network
from vitlab.experiments.how_vits_work._readings import ERROR, NLL_TRAIN
from vitlab.experiments.how_vits_work._shared import POINTS, SEEDS

TITLE = "HDVW Fig. C.1: the lower the training NLL, the lower the test error"

_CIFAR10 = ("resnet50", "resnext50", "vit_tiny", "pit_tiny", "swin_tiny", "twins_small", "mixer_tiny")
_IMAGENET = ("resnet50", "resnext50", "vit_tiny", "pit_tiny", "swin_tiny")

PAPER = [
    Published(f"{data}: {name}", column, None)
    for data, names in (("CIFAR-10", _CIFAR10), ("ImageNet", _IMAGENET))
    for name in names
    for column in ("error", "NLL_train")
]

_CHECKS = [
    tested(
        "cifar10_nll",
        "On CIFAR-10 the NLL_train of ViT is higher than that of ResNet",
        more(NLL_TRAIN, "cifar10 vit_tiny", "cifar10 resnet50"),
        "Fig. C.1a",
    ),
    tested(
        "cifar10_error",
        "On CIFAR-10 the error of ViT is higher than that of ResNet",
        more(ERROR, "cifar10 vit_tiny", "cifar10 resnet50"),
        "Fig. C.1a",
        smallest=POINTS,
    ),
    tested(
        "cifar10_order",
        "On CIFAR-10 the error rises with NLL_train over the networks (slope)",
        slope(ERROR, NLL_TRAIN, [f"cifar10 {name}" for name in _CIFAR10]),
        "Fig. C.1a",
    ),
    tested(
        "imagenet_nll",
        "On ImageNet the NLL_train of Swin is lower than that of ResNet",
        more(NLL_TRAIN, "imagenet resnet50", "imagenet swin_tiny"),
        "Fig. C.1b: ViTs with local MSAs",
    ),
    tested(
        "imagenet_error",
        "On ImageNet the error of Swin is lower than that of ResNet",
        more(ERROR, "imagenet resnet50", "imagenet swin_tiny"),
        "Fig. C.1b: ViTs with local MSAs",
        smallest=POINTS,
    ),
    tested(
        "imagenet_order",
        "On ImageNet the error rises with NLL_train over the networks (slope)",
        slope(ERROR, NLL_TRAIN, [f"imagenet {name}" for name in _IMAGENET]),
        "Fig. C.1b",
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """CIFAR-10 at `small` and `full`; ImageNet with published weights at `released`.

    At `full` ResNet and ViT are trained on ImageNet; the others have published weights, the same for every seed.
    """
    cifar10 = {f"cifar10 {name}": network(name, data="cifar10") for name in _CIFAR10}
    published = {f"imagenet {name}": RELEASED[name] for name in _IMAGENET}
    if scale == "released":
        return released(published, "fit")
    if scale == "small":
        return jobs(scale, cifar10, "fit")
    if scale == "smoke":
        return jobs(scale, cifar10 | {f"imagenet {name}": network(name) for name in _IMAGENET}, "fit")
    own = {f"imagenet {name}": imagenet(name) for name in ("resnet50", "vit_tiny")}
    others = {arm: model for arm, model in published.items() if arm not in own}
    return jobs(scale, cifar10 | own, "fit") + released(others, "fit", seeds=SEEDS[scale])


def check(results: Results) -> list[Verdict]:
    """Differences and slopes paired by seed, or by part of the images."""
    return verdicts(_CHECKS, results)
