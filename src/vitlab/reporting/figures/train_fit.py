"""NLL on the training set against error on the test set, as HDVW Figs. 5a and 7a draw it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, colour, empty_plot, marker, plain
from vitlab.reporting.judging import told
from vitlab.reporting.percent import only_bars_that_are_there
from vitlab.reporting.readings import reading


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """A point for each model, with 95 % intervals both ways."""
    import plotly.graph_objects as go

    plot = empty_plot("NLL on the training set, nats (bars: 95 %)", "error on the test set, % (bars: 95 %)")
    for index, measurement in enumerate(measurements):
        nll, error = float(measurement.values["train_nll"]), 100 * float(measurement.values["test_error"])
        plot.add_trace(
            go.Scatter(
                **{"x": [nll], "y": [error], "name": plain(measurement.subject), "mode": "markers"},
                marker={"color": colour(index), "symbol": marker(index), "size": 12},
                error_x=_whiskers(measurement, "train_nll", 1),
                error_y=_whiskers(measurement, "test_error", 100),
                hovertemplate="NLL %{x:.4g} nats, error %{y:.2f} %",
            )
        )
    plot.update_layout(hovermode="closest")
    return [Figure(_finding(measurements), "HDVW Figs. 5a and 7a", only_bars_that_are_there(plot))]


def _whiskers(measurement: Measurement, name: str, scale: float) -> dict[str, Any] | None:
    """A 95 % interval around a number; none where it is missing or infinite."""
    bounds = np.asarray(measurement.values.get(f"{name}_interval", (np.nan, np.nan)), dtype=float)
    if not np.isfinite(bounds).all():
        return None
    middle = float(measurement.values[name])
    low, high = (scale * abs(float(bound) - middle) for bound in bounds)
    return {"type": "data", "array": [high], "arrayminus": [low], "thickness": 1}


def _finding(measurements: Sequence[Measurement]) -> str:
    """Both numbers of each model: one that overfits has the lower NLL and the higher error."""
    fit = told("NLL on the training set", measurements, reading("train_nll"), "nats")
    return f"{fit}; {told('error on the test set', measurements, reading('test_error', 100), '%')}"
