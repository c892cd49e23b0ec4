"""Error on the test set over NLL on the training set, as in HDVW Figs. 5a and 7a."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, colour, empty_plot, marker, plain, remove_unused_bar_notes
from vitlab.reporting.headline import Headline, describe_number
from vitlab.reporting.readings import reading


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """A point for each model with 95 % intervals in both directions."""
    import plotly.graph_objects as go

    plot = empty_plot("NLL on the training set, nats (bars: 95 %)", "error on the test set, % (bars: 95 %)")
    for index, measurement in enumerate(measurements):
        nll, error = float(measurement.values["train_nll"]), 100 * float(measurement.values["test_error"])
        plot.add_trace(
            go.Scatter(
                **{"x": [nll], "y": [error], "name": plain(measurement.subject), "mode": "markers"},
                marker={"color": colour(index), "symbol": marker(index), "size": 12},
                error_x=_error_bars(measurement, "train_nll", 1),
                error_y=_error_bars(measurement, "test_error", 100),
                hovertemplate="NLL %{x:.4g} nats, error %{y:.2f} %",
            )
        )
    plot.update_layout(hovermode="closest")
    return [Figure(_finding(measurements), "HDVW Figs. 5a and 7a", remove_unused_bar_notes(plot))]


def _error_bars(measurement: Measurement, name: str, scale: float) -> dict[str, Any] | None:
    """The 95 % interval of a number; None if it is missing or infinite."""
    bounds = np.asarray(measurement.values.get(f"{name}_interval", (np.nan, np.nan)), dtype=float)
    if not np.isfinite(bounds).all():
        return None
    middle = float(measurement.values[name])
    low, high = (scale * abs(float(bound) - middle) for bound in bounds)
    return {"type": "data", "array": [high], "arrayminus": [low], "thickness": 1}


def _finding(measurements: Sequence[Measurement]) -> Headline:
    """Both numbers of each model: overfitting is a lower NLL with a higher error."""
    fit = describe_number("NLL on the training set", measurements, reading("train_nll"), "nats", name="train_nll")
    test = describe_number("error on the test set", measurements, reading("test_error", 100), "%")
    return replace(fit, sentence=f"{fit.sentence}; {test.sentence}")
