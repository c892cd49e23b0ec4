"""Figures as plotly data: one look for all, and a default drawing chosen from the axis names.

plotly is imported when a figure is drawn, so that measuring needs none.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement

#: Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def draw(kind: str, measurements: Sequence[Measurement]) -> list[Any]:
    """The figures of one kind: its own drawing in `figures/`, else the default one."""
    name = f"vitlab.reporting.figures.{kind}"
    if importlib.util.find_spec(name) is not None:
        figures: list[Any] = importlib.import_module(name).draw(measurements)
        return figures
    return default_drawing(measurements)


def default_drawing(measurements: Sequence[Measurement]) -> list[Any]:
    """One figure for each value: a line over its first axis for each subject, averaged over the others."""
    first = measurements[0]
    figures = []
    for name, value in first.values.items():
        if np.ndim(value) == 0 or not np.issubdtype(np.asarray(value).dtype, np.number):
            continue
        axis = first.dims[name][0]
        figure = empty_figure(f"{name} by {axis}", axis, name)
        for index, measurement in enumerate(measurements):
            if name in measurement.values:
                add_line(figure, measurement, name, index)
        figures.append(figure)
    return figures


def empty_figure(title: str, x: str, y: str) -> Any:
    """A figure with the look that all share."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        title={"text": title, "x": 0, "xanchor": "left", "y": 0.97, "yanchor": "top", "font": {"size": 17}},
        xaxis_title=x,
        yaxis_title=y,
        colorway=COLOURS,
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 14},
        margin={"l": 64, "r": 40, "t": 96, "b": 48},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        hovermode="x unified",
        modebar={"orientation": "v", "bgcolor": "rgba(0,0,0,0)"},
        height=420,
    )
    figure.update_xaxes(gridcolor="rgba(128,128,128,0.2)")
    figure.update_yaxes(gridcolor="rgba(128,128,128,0.2)")
    return figure


def add_line(figure: Any, measurement: Measurement, value: str, index: int, **style: Any) -> None:
    """One value of one subject over its first axis; other axes are averaged."""
    import plotly.graph_objects as go

    array = np.asarray(measurement.values[value], dtype=float)
    y = array if array.ndim == 1 else np.nanmean(array.reshape(len(array), -1), axis=1)
    line = {"color": COLOURS[index % len(COLOURS)], **style.pop("line", {})}
    trace = {"name": measurement.subject, "mode": "lines+markers", **style}
    figure.add_trace(go.Scatter(x=labels(measurement, value), y=y, line=line, **trace))


def labels(measurement: Measurement, name: str) -> list[Any]:
    """What stands along the first axis of a value: layers are numbered from 1, as in the papers."""
    axis = measurement.dims[name][0]
    count = len(measurement.values[name])
    return list(range(1, count + 1)) if axis == "layer" else list(measurement.axes.get(axis, range(count)))
