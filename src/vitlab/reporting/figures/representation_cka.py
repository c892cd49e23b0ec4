"""CKA of the features of all pairs of layers (HDVW Figs. 10a, D.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, heat_map, plain
from vitlab.reporting.headline import Phrase, describe_number
from vitlab.reporting.panels import on_panel, panels, rounded, shrunk
from vitlab.reporting.readings import reading

_ALIKE = Phrase("Shallow and deep layers are", ("less alike", "more alike"))


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """A heat map for each model; blocks along the diagonal are groups of similar layers."""
    plot = panels([_title(measurement) for measurement in measurements], "layer", "layer", height=250, legend=False)
    for panel, measurement in enumerate(measurements):
        cka = np.asarray(measurement.values["cka"], dtype=float)
        rows, columns = (shrunk(np.arange(1.0, size + 1)[None])[0] for size in cka.shape)
        bar = {"title": {"text": "CKA", "side": "right"}, "thickness": 14}
        hover = "layers %{y} and %{x}: %{z:.3f}"
        look: dict[str, Any] = {"zmin": 0, "zmax": 1, "colorbar": bar, "hovertemplate": hover}
        look["name"] = plain(measurement.subject)
        heat_map(plot, rounded(shrunk(cka), 5), columns.tolist(), rows.tolist(), **look)
        axes = on_panel(panel)
        plot.data[-1].update(**axes, showscale=panel == 0)
        plot.layout[axes["yaxis"].replace("y", "yaxis")].update(
            scaleanchor=axes["xaxis"], constrain="domain", constraintoward="top"
        )
        plot.layout[axes["xaxis"].replace("x", "xaxis")].update(constrain="domain")
    what = "CKA between layers of the shallow half and of the deep half"
    return [
        Figure(
            describe_number(what, measurements, reading("cka"), claim=_ALIKE, name="cka"), "HDVW Figs. 10a, D.3", plot
        )
    ]


def _title(measurement: Measurement) -> str:
    other = measurement.settings.get("other")
    return f"{measurement.subject}, columns: {other}" if other else measurement.subject
