"""Entropy by depth with its bound and both tails, as CB Figs. 4 and 7a draw it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import COLOURS, add_line, empty_figure, labels


def draw(measurements: Sequence[Measurement]) -> list[Any]:
    """Mean entropy by layer for each subject, between its 15th and 85th percentile, under log N."""
    figure = empty_figure(finding(measurements), "layer", "entropy, nats (band: 15–85 %)")
    for index, measurement in enumerate(measurements):
        add_line(figure, measurement, "mean", index)
        _band(figure, measurement, index)
    add_line(
        figure,
        measurements[0],
        "bound",
        0,
        name="log N (uniform)",
        mode="lines",
        line={"dash": "dot", "color": "#888888"},
    )
    return [figure]


def finding(measurements: Sequence[Measurement]) -> str:
    """The figure's title: what it shows, with the number."""
    deep = [float(np.nanmean(_deep(measurement))) for measurement in measurements]
    if len(deep) == 1:
        return f"Deep-layer attention entropy is {deep[0]:.2f} nats (CB Fig. 4)"
    change = deep[1] - deep[0]
    word = "higher" if change > 0 else "lower"
    return f"Deep-layer attention entropy is {abs(change):.2f} nats {word} than in the first model (CB Fig. 7a)"


def _deep(measurement: Measurement) -> np.ndarray:
    mean = measurement.values["mean"]
    return np.asarray(mean[len(mean) // 2 :])


def _band(figure: Any, measurement: Measurement, index: int) -> None:
    import plotly.graph_objects as go

    low, high = (np.nanmean(measurement.values[name], axis=1) for name in ("p15", "p85"))
    x = labels(measurement, "mean")
    red, green, blue = (int(COLOURS[index % len(COLOURS)][i : i + 2], 16) for i in (1, 3, 5))
    figure.add_trace(
        go.Scatter(
            x=[*x, *x[::-1]],
            y=[*high, *low[::-1]],
            mode="lines",
            fill="toself",
            fillcolor=f"rgba({red},{green},{blue},0.12)",
            line={"width": 0},
            hoverinfo="skip",
            showlegend=False,
        )
    )
