"""HDVW Fig. 3a and App. B: spatial smoothing (2×2 box blurs at the end of stages) of a CNN, and Proposition B.1.

The paper gives no numbers: it quotes another paper, "Blur is an ensemble". Proposition B.1 is checked on the attention
maps of the last layer of a ViT with random weights: powers of each map converge to a map with equal rows, which leaves
only the mean of the values.
"""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import Reading, claims, fact, more, own, tested, verdicts
from vitlab.experiments.how_vits_work._jobs import jobs
from vitlab.experiments.how_vits_work._networks import NETWORKS, smoothed
from vitlab.experiments.how_vits_work._readings import (
    ACCURACY,
    CALIBRATION_ERROR,
    HIGH_NOISE_DROP,
    LOG_SIZE,
    ROBUSTNESS,
)
from vitlab.experiments.how_vits_work._shared import CORRUPTED, EARLY, LOGARITHM, POINTS

TITLE = "HDVW App. B: spatial smoothing improves CNNs, and attention is spatial smoothing"

DIFFERENCES = CORRUPTED

PAPER = [
    Published("CNN with spatial smoothing", column, None)
    for column in ("accuracy", "ECE", "robustness", "decrease in accuracy by frequency of the noise")
]

_APPLICATIONS = 2**10


def _leaves_the_mean(found: Measurement) -> bool:
    """Whether every row of every map sums to 1 and all rows of its 1024th power are equal."""
    maps = [np.asarray(values, dtype=float) for values in found.values.values() if np.ndim(values) == 4]
    if not maps:
        return False
    rows = all(np.allclose(each.sum(-1), 1, atol=1e-4) for each in maps)
    powers = [np.linalg.matrix_power(each / each.sum(-1, keepdims=True), _APPLICATIONS) for each in maps]
    return rows and all(float(np.ptp(power, axis=-2).max()) < 1e-3 for power in powers)


_CHECKS = [
    fact(
        "proposition_b1",
        "Self-attention is a low-pass filter: applied again and again it leaves only the mean of the values",
        own(Reading("equal rows", ("attention_maps",), lambda found: float(_leaves_the_mean(found))), "attention"),
        "Proposition B.1",
    ),
    tested(
        "accuracy",
        "Spatial smoothing raises the accuracy of a CNN",
        more(ACCURACY, "smoothed", "plain"),
        "App. B ①",
        smallest=POINTS,
    ),
    tested(
        "calibration",
        "Spatial smoothing lowers the calibration error of a CNN",
        more(CALIBRATION_ERROR, "plain", "smoothed"),
        "App. B ①",
        smallest=POINTS,
    ),
    tested(
        "robustness",
        "Spatial smoothing raises the mean accuracy of a CNN under corruptions",
        more(ROBUSTNESS, "smoothed", "plain"),
        "App. B ②",
        smallest=POINTS,
    ),
    tested(
        "high_frequencies",
        "Spatial smoothing makes a CNN lose less accuracy under high-frequency noise",
        more(HIGH_NOISE_DROP, "plain", "smoothed"),
        "App. B ②",
        smallest=POINTS,
    ),
    tested(
        "close_to_the_output",
        "Smoothing after the last two stages raises the accuracy more than after the first two",
        more(ACCURACY, "last stages", "first stages"),
        "App. B ③",
        smallest=POINTS,
    ),
    tested(
        "flat",
        "Spatial smoothing reduces the Hessian eigenvalues in the early phase (log of the mean size)",
        more(LOG_SIZE, f"plain{EARLY}", f"smoothed{EARLY}"),
        "App. B",
        smallest=LOGARITHM,
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """ResNet-50 without and with smoothing on CIFAR-100, and the attention of a ViT at every scale."""
    maps = Job("attention", "attention_maps", model="vitlab/vit_tiny_cifar(patch_size=8, depth=2)", images=1)
    pair = {"plain": NETWORKS["resnet50"], "smoothed": smoothed("resnet50")}
    parts = {"last stages": smoothed("resnet50", "upper"), "first stages": smoothed("resnet50", "lower")}
    measured = ("fit", "calibration", "corruptions", "noise", "hessian, early")
    return [maps, *jobs(scale, pair, *measured), *jobs(scale, parts, "fit")]


def check(results: Results) -> list[Verdict]:
    """Differences paired by seed; the proposition exactly."""
    return verdicts(_CHECKS, results)
