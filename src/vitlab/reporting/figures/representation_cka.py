"""Likeness of the features of all pairs of layers (HDVW Figs. 10a, D.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, heat_map, plain
from vitlab.reporting.judging import told
from vitlab.reporting.panels import panels, rounded, shrunk
from vitlab.reporting.percent import on_panel
from vitlab.reporting.readings import reading


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
    what = "CKA between layers of the shallow half and of the deep half"
    return [Figure(told(what, measurements, reading("cka")), "HDVW Figs. 10a, D.3", plot)]


def _title(measurement: Measurement) -> str:
    other = measurement.settings.get("other")
    return f"{measurement.subject}, across: {other}" if other else measurement.subject
