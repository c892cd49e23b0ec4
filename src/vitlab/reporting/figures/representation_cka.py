"""Likeness of the features of all pairs of layers (HDVW Figs. 10a, D.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.by_depth import mean
from vitlab.reporting.drawing import Figure, heat_map, plain
from vitlab.reporting.findings import finding
from vitlab.reporting.panels import panels, rounded, shrunk
from vitlab.reporting.shares import on_panel


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """A heat map for each model; blocks along the diagonal are stages that work on their own."""
    plot = panels([_title(measurement) for measurement in measurements], "layer", "layer", height=300, legend=False)
    for panel, measurement in enumerate(measurements):
        found = np.asarray(measurement.values["cka"], dtype=float)
        rows, columns = (shrunk(np.arange(1.0, size + 1)[None])[0] for size in found.shape)
        bar = {"title": {"text": "CKA", "side": "right"}, "thickness": 14}
        hover = "layers %{y} and %{x}: %{z:.3f}"
        look: dict[str, Any] = {"zmin": 0, "zmax": 1, "colorbar": bar, "hovertemplate": hover}
        look["name"] = plain(measurement.subject)
        heat_map(plot, rounded(shrunk(found), 5), columns.tolist(), rows.tolist(), **look)
        axes = on_panel(panel)
        plot.data[-1].update(**axes, showscale=panel == 0)
        plot.layout[axes["yaxis"].replace("y", "yaxis")].update(
            scaleanchor=axes["xaxis"], constrain="domain", constraintoward="top"
        )
        plot.layout[axes["xaxis"].replace("x", "xaxis")].update(constrain="domain")
    names = [measurement.subject for measurement in measurements]
    values = [_halves(measurement) for measurement in measurements]
    errors = [_halves(measurement, "cka_error") for measurement in measurements]
    what = "CKA between layers of the shallow half and of the deep half"
    return [Figure(finding(what, values, names, errors=errors), "HDVW Figs. 10a, D.3", plot)]


def _title(measurement: Measurement) -> str:
    other = measurement.settings.get("other")
    return f"{measurement.subject}, across: {other}" if other else measurement.subject


def _halves(measurement: Measurement, name: str = "cka") -> float:
    """The mean over pairs of one layer of the first half and one of the second."""
    found = np.asarray(measurement.values.get(name, np.full((1, 1), np.nan)), dtype=float)
    rows, columns = (size // 2 for size in found.shape)
    return (
        mean(np.concatenate((found[:rows, columns:].ravel(), found[rows:, :columns].ravel()))) if rows else mean(found)
    )
