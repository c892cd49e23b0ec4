"""CB Fig. S11: training curves of ViT-S with and without CB."""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import claims_of, gain, verdicts_of
from vitlab.experiments.context_broadcasting._shared import REPEATED, Network

TITLE = "CB Fig. S11: training curves with and without CB"

DIFFERENCES = REPEATED

_CURVES = ("top-1 by epoch", "top-5 by epoch", "training loss by epoch", "evaluation loss by epoch")
PAPER = [Published(row, column, None) for row in ("ViT-S", "ViT-S + CB") for column in _CURVES]

_ARMS = {"plain": Network(), "fair": Network(repeated=False), "cb": Network("cb")}


def _over_epochs(found: Measurement) -> float:
    """The mean top-1 over all epochs that were evaluated."""
    return float(np.nanmean(found.values["top1"]))


_CHECKS = [
    gain(
        Claim("top-1", "CB ends with a higher top-1 accuracy", paper=0.9, source="Fig. S11; the number is Table 2's"),
        "plain",
        "cb",
    ),
    gain(
        Claim("top-5", "CB ends with a higher top-5 accuracy", paper=0.4, source="Fig. S11; the number is Table 5's"),
        "plain",
        "cb",
        "top5",
    ),
    # Repeated augmentation changes the training loss: these two are compared without it.
    gain(
        Claim("training loss", "CB ends with a lower training loss", source="Fig. S11"),
        "cb",
        "fair",
        "train_loss",
        unit="nats",
    ),
    gain(
        Claim("evaluation loss", "CB ends with a lower evaluation loss", source="Fig. S11"),
        "cb",
        "fair",
        "loss",
        unit="nats",
    ),
    gain(
        Claim("across epochs", "with CB the top-1 accuracy is higher on average over the epochs", source="Sec. B.1"),
        "fair",
        "cb",
        _over_epochs,
    ),
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Training with and without CB."""
    return [job for arm, network in _ARMS.items() for job in network.jobs(scale, arm)]


def check(results: Results) -> list[Verdict]:
    """Paired by seed."""
    return verdicts_of(_CHECKS, results)
