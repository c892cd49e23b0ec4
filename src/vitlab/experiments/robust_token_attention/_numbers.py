"""What the tables and figures of TAPADL report: the procedure at each scale, and the number in its measurement.

Errors and accuracies are in per cent, as printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitlab.core.experiment import Job, Results, Scale, values_of
from vitlab.core.measurement import Measurement
from vitlab.experiments.robust_token_attention._variants import Measured

IMAGENET: dict[str, Any] = {"data": "imagenet", "needs": ("imagenet",), "gigabytes": 7.0}


def _attention(procedure: str) -> dict[str, Measured]:
    """The paper averages over all of ImageNet; 5,000 images are our choice, in 5 parts for published weights."""
    return {
        "smoke": Measured(procedure, images=16),
        "small": Measured(procedure, images=1000),
        "released": Measured(procedure, images=5000, repeats=5, **IMAGENET),
        "full": Measured(procedure, images=5000),
    }


_C = Measured("imagenet_c", needs=("imagenet-c",), gigabytes=80.0)
ACCURACY = {
    "smoke": Measured("training"),
    "small": Measured("training"),
    "released": Measured("calibration", images=50_000, repeats=5, **IMAGENET),
    "full": Measured("training"),
}
CORRUPTIONS = {
    "smoke": Measured("corruptions(severities=(3,))", images=16),
    "small": Measured("corruptions", images=2000),
    "released": _C,
    "full": _C,
}
#: What differs from the paper where corruptions are measured.
ON_CIFAR100: dict[Scale, tuple[str, ...]] = {
    "small": (
        "Corruptions are generated for 2,000 test images of CIFAR-100. mCE is relative to the errors of the AlexNet on "
        "CIFAR-100 that the authors of HDVW published.",
    )
}
STABILITY = _attention("attention_stability")
OVERFOCUS = _attention("token_overfocus")
DIVERSITY = _attention("attention_diversity")


def _maps(heads: str) -> dict[str, Measured]:
    """Maps of the last layer for one image."""
    procedure = f"attention_maps(heads={heads})"
    trained = Measured(procedure, images=16)
    return {"smoke": trained, "small": trained, "full": trained, "released": Measured(procedure, images=16, **IMAGENET)}


MAPS = _maps("'mean'")
HEAD_MAPS = _maps("None")


@dataclass(frozen=True)
class Number:
    """A number of a table.

    Args:
        kinds: the procedures that give it.
        value: the number in the measurement of one of them; NaN if it has none.
        lower: whether lower values are better.
        where: the jobs that give it.
        unit: of differences.
    """

    kinds: tuple[str, ...]
    value: Callable[[Measurement], float]
    lower: bool = False
    where: Callable[[Job], bool] = lambda job: True
    unit: str = "points"

    def of(self, results: Results, arm: str, *, published: bool = False) -> dict[tuple[int, int], float]:
        """Returns it for each run of an arm that has it, by seed and part of the images.

        Args:
            results: the measurements.
            arm: the arm.
            published: only models with published weights, none that a recipe trained.
        """

        def where(job: Job) -> bool:
            return self.where(job) and (bool(job.model) or not published)

        found = [results.by_part(arm, kind, self.value, where) for kind in self.kinds]
        return {key: value for each in found for key, value in each.items() if np.isfinite(value)}


def _top1(found: Measurement) -> float:
    if found.kind == "calibration":
        return 100 * float(found.values["accuracy"])
    return float(np.asarray(found.values["top1"]).reshape(-1)[-1])


def corruption_error(corruption: str) -> Number:
    """Error on one corruption relative to AlexNet's, as in Table 3; the plain error where AlexNet's is unknown."""

    def value(found: Measurement) -> float:
        relative = 100 * float(values_of(found, "ce", corruption=corruption))
        if np.isfinite(relative):
            return relative
        return 100 * float(values_of(found, "error", corruption=corruption).mean())

    return Number(("corruptions", "imagenet_c"), value, lower=True)


def _mce(found: Measurement) -> float:
    """mCE; the mean error where it is not defined: fewer severities, or no errors of AlexNet (scenes)."""
    mce = 100 * float(found.values["mce"])
    return mce if np.isfinite(mce) else 100 * (1 - float(found.values["mean_accuracy"]))


def _last_layer(name: str) -> Callable[[Measurement], float]:
    return lambda found: float(np.nanmean(np.asarray(found.values[name])[-1]))


def _over_layers(name: str) -> Callable[[Measurement], float]:
    return lambda found: float(np.nanmean(found.values[name]))


TOP1 = Number(("training", "calibration"), _top1)
MCE = Number(("corruptions", "imagenet_c"), _mce, lower=True)
#: Cosine similarity of attention on clean and noisy images over all layers, heads and images.
SIMILARITY = Number(("attention_stability",), lambda found: float(found.values["overall"]), unit="")
GINI_UNIT = "of the Gini coefficient"
#: Gini coefficient of the attention that tokens receive, heads averaged, last layer (the map of Figs. 1 and 3).
GINI = Number(("token_overfocus",), _last_layer("gini_of_mean"), lower=True, unit=GINI_UNIT)
HEAD_SIMILARITY = Number(("attention_diversity",), _over_layers("head_similarity"), lower=True, unit="")
ROW_SIMILARITY = Number(("attention_diversity",), _last_layer("row_similarity"), lower=True, unit="")
SELF_MASS = Number(("attention_diversity",), _last_layer("self_mass"), unit="")
