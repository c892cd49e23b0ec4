"""The way of the weights in polar coordinates, as HDVW Fig. 1b drew it before its authors withdrew it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import GREY, Figure, colour, dash, empty_plot, labels, marker, plain
from vitlab.reporting.judging import told


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """From the first snapshot at r = 1 to the last weights at the origin, a point for each snapshot."""
    import plotly.graph_objects as go

    plot = empty_plot("", "", height=480)
    for index, measurement in enumerate(measurements):
        radius, angle = _polar(measurement)
        stroke = {"color": colour(index), "dash": dash(index)}
        dot = {"symbol": marker(index), "size": 7, "color": colour(index)}
        look = {"mode": "lines+markers", "line": stroke, "marker": dot, "name": plain(measurement.subject)}
        text = [str(snapshot) for snapshot in labels(measurement, "radius")]
        hover = "snapshot %{text}: r = %{r:.3f}, θ = %{theta:.1f}°"
        plot.add_trace(go.Scatterpolar(r=radius, theta=angle, text=text, hovertemplate=hover, **look))
    widest = max((max(trace.theta, default=0.0) for trace in plot.data), default=0.0)
    faint = {"gridcolor": "rgba(128,128,128,0.3)", "linecolor": GREY}
    plot.update_layout(
        hovermode="closest",
        legend_y=1.1,  # clear of the 90° above the axis
        margin={"l": 40, "r": 40, "t": 88, "b": 72},
        polar={
            "bgcolor": "rgba(0,0,0,0)",
            "sector": [0, 90 if widest <= 90 else 180],
            "radialaxis": {
                "title": {"text": "r = ‖Δw‖ / ‖Δw of the start‖"},
                "rangemode": "tozero",
                "angle": 0,
                **faint,
            },
            "angularaxis": {"ticksuffix": "°", "dtick": 15, **faint},
        },
    )
    return [Figure(_finding(measurements), "HDVW Fig. 1b, withdrawn by its authors", plot)]


def _polar(measurement: Measurement) -> tuple[list[float], list[float]]:
    """r, and θ in degrees; the origin has no angle and is given the one before, so that the line reaches it."""
    radius = np.asarray(measurement.values["radius"], dtype=float)
    angle = np.degrees(np.asarray(measurement.values["angle"], dtype=float))
    before = 0.0
    for place, value in enumerate(angle):
        angle[place] = before = value if np.isfinite(value) else before
    return radius.tolist(), angle.tolist()


def _finding(measurements: Sequence[Measurement]) -> str:
    what, words = "Widest angle to the way the training set out on", ("narrower", "wider")
    said = told(what, measurements, lambda m: (_widest(m), np.nan), "°", words=words)
    return f"{said}. Two coordinates say little about a way through millions: draw no conclusion from a smooth curve"


def _widest(measurement: Measurement) -> float:
    angles = np.degrees(np.asarray(measurement.values["angle"], dtype=float))
    return float(np.nanmax(angles)) if np.isfinite(angles).any() else float("nan")
