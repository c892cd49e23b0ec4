"""The measurements of a run, as `vitlab reproduce` would store them for a job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from vitlab.core.experiment import Job
from vitlab.core.expressions import parse_call
from vitlab.core.measurement import Measurement

__all__ = ["measurement_of"]

#: Settings that choose entries of an axis. Claims read these entries by their labels: other entries do not matter.
_LABELS = {"occlusion": ("centres", "ratios"), "adversarial": ("attacks", "epsilons")}

#: What a stored measurement has besides its values.
_ABOUT = ("axes", "settings", "images", "seconds")

#: Names of the axes of each value that has any.
_DIMS: dict[str, dict[str, tuple[str, ...]]] = {
    "attention_entropy": {"mean": ("layer", "head"), "class_row": ("layer", "head")},
    "attention_diversity": {
        "head_similarity": ("layer",),
        "row_similarity": ("layer", "head"),
        "self_mass": ("layer", "head"),
        "neighbourhood_mass": ("layer", "head"),
    },
    "token_overfocus": {
        "top1": ("layer", "head"),
        "gini": ("layer", "head"),
        "top1_of_mean": ("layer",),
        "gini_of_mean": ("layer",),
    },
    "attention_stability": {"mean": ("layer", "head")},
    "broadcast_scale": dict.fromkeys(("ratio", "ratio_signed", "mean", "mean_absolute"), ("layer",)),
    "corruptions": {"accuracy": ("corruption", "severity"), "ce": ("corruption",)},
    "occlusion": {"accuracy": ("mask",)},
    "adversarial": {"accuracy": ("attack", "epsilon")},
}


def measurement_of(job: Job, run: Mapping[str, Any]) -> tuple[Measurement | None, list[str]]:
    """Returns the measurement that a run has of a job, and what differs from the job; None if it has none."""
    if job.kind == "training":
        return _training(job, run), []
    stored = run["measured"].get(job.kind)
    if stored is None:
        return None, []
    name, asked = parse_call(job.procedure)
    for setting, value in asked.items():
        if setting not in _LABELS.get(name, ()) and _plain(stored["settings"].get(setting)) != _plain(value):
            return None, []
    differences = []
    if job.images is not None and stored["images"] is not None and stored["images"] != job.images:
        differences.append(f"{name} is measured on {stored['images']:,} images instead of {job.images:,}.")
    values = {key: _array(value) for key, value in stored.items() if key not in _ABOUT}
    dims = {key: _DIMS.get(name, {}).get(key, ()) for key in values}
    axes = {axis: tuple(labels) for axis, labels in stored["axes"].items()}
    return Measurement(name, job.arm, values, dims, axes, stored["settings"]), differences


def _training(job: Job, run: Mapping[str, Any]) -> Measurement:
    """The metrics by epoch; NaN in epochs without evaluation."""
    rows = {row["epoch"]: row for row in run["metrics"]}
    epochs = tuple(range(1, run["epochs"] + 1))
    values = {
        name: np.array([rows.get(epoch, {}).get(name, math.nan) for epoch in epochs])
        for name in ("loss", "top1", "top5")
    }
    values["train_loss"] = np.array(run["train_loss"], dtype=float)
    return Measurement("training", job.arm, values, dict.fromkeys(values, ("epoch",)), {"epoch": epochs})


def _array(value: Any) -> np.ndarray:
    """Numbers as an array, NaN for those that are not finite."""
    return np.array(value, dtype=float)


def _plain(value: Any) -> Any:
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
