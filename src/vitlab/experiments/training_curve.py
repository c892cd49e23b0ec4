"""The procedure `training`: the metrics of a finished training run by epoch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.store import Run, read_about

__all__ = ["training_curve"]

#: Columns of a row that are not metrics.
_NOT_METRICS = ("epoch", "step", "images_per_second")


def training_curve(folder: Path) -> Measurement:
    """Returns the metrics of a run folder, each with the axis `epoch`; NaN in epochs without the metric."""
    rows = {row["epoch"]: row for row in Run(folder).epochs()}
    if not rows:
        raise VitlabError(f"{folder} has no metrics; remove the folder to train again")
    names = [name for name in dict.fromkeys(name for row in rows.values() for name in row) if name not in _NOT_METRICS]
    values = {name: np.array([_number(row.get(name)) for row in rows.values()]) for name in names}
    about = read_about(folder / "model.safetensors")
    model = {"expression": f"file/{folder}", "weights": about.get("weights", ""), "origin": f"file: {folder}"}
    axes = {"epoch": tuple(rows)}
    return Measurement(
        "training", folder.name, values, dict.fromkeys(names, ("epoch",)), axes, {}, {"model": {**model, "parts": []}}
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")
