"""HDVW Fig. 2: Fourier analysis of feature maps (a), and accuracy under noise of limited frequency (b).

The strength of the noise is not published: our choice (`stress_tests/frequency_noise.py`).
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import claims, more, own, tested, verdicts
from vitlab.experiments.how_vits_work._feature_maps import net_amplitude
from vitlab.experiments.how_vits_work._jobs import jobs, released
from vitlab.experiments.how_vits_work._networks import RELEASED, arms, imagenet
from vitlab.experiments.how_vits_work._readings import HIGH_NOISE_DROP, LOW_NOISE_DROP
from vitlab.experiments.how_vits_work._shared import POINTS

TITLE = "HDVW Fig. 2: MSAs are low-pass filters, Convs are high-pass filters"

DIFFERENCES: dict[Scale, tuple[str, ...]] = {
    "small": ("ResNet-50 and ViT-Ti on CIFAR-100 replace the networks on ImageNet.",),
    "released": ("timm's ResNet-50 (a1) and DeiT-Ti replace the networks that the paper trains.",),
}

_ARMS = ("resnet50", "vit_tiny")

PAPER = [
    Published(network, column, None)
    for network in ("ResNet", "ViT")
    for column in ("Δ log amplitude by frequency", "decrease in accuracy by frequency of the noise")
]

_CHECKS = [
    tested(
        "vit_reduces",
        "ViT reduces the high frequencies of its feature maps from the first to the last but one",
        own(net_amplitude(), "vit_tiny", -1),
        "Fig. 2a",
    ),
    tested(
        "resnet_amplifies",
        "ResNet amplifies the high frequencies of its feature maps from the first to the last but one",
        own(net_amplitude(), "resnet50"),
        "Fig. 2a",
    ),
    tested(
        "high_noise",
        "High-frequency noise (0.8π to 1.0π) lowers the accuracy of ResNet more than that of ViT",
        more(HIGH_NOISE_DROP, "resnet50", "vit_tiny"),
        "Fig. 2b",
        smallest=POINTS,
    ),
    tested(
        "low_noise",
        "Low-frequency noise (0.1π to 0.3π) lowers the accuracy of ViT more than that of ResNet",
        more(LOW_NOISE_DROP, "vit_tiny", "resnet50"),
        "Sec. 3",
        smallest=POINTS,
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """ResNet-50 and ViT-Ti: on CIFAR-100 at `small`, on ImageNet at `released` and `full`."""
    if scale == "released":
        return released({arm: RELEASED[arm] for arm in _ARMS}, "fourier", "noise")
    networks = {arm: imagenet(arm) for arm in _ARMS} if scale == "full" else arms(_ARMS)
    return jobs(scale, networks, "fourier", "noise")


def check(results: Results) -> list[Verdict]:
    """Differences paired by run, or by part of the images."""
    return verdicts(_CHECKS, results)
