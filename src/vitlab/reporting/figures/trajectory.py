"""The trajectory of the weights in polar coordinates, as in HDVW Fig. 1b, which its authors withdrew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import GREY, Figure, colour, dash, empty_plot, labels, marker, plain
from vitlab.reporting.headline import Headline, describe_number


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """One point per snapshot, from the first at r = 1 to the final weights at the origin."""
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
        legend_y=1.1,  # above the label of 90°
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
    """r, and θ in degrees; the origin has no angle and gets the previous one, so that the line ends there."""
    radius = np.asarray(measurement.values["radius"], dtype=float)
    angle = np.degrees(np.asarray(measurement.values["angle"], dtype=float))
    before = 0.0
    for place, value in enumerate(angle):
        angle[place] = before = value if np.isfinite(value) else before
    return radius.tolist(), angle.tolist()


def _finding(measurements: Sequence[Measurement]) -> Headline:
    what, words = "Largest angle to the initial direction", ("smaller", "larger")
    angle = describe_number(what, measurements, lambda m: (_largest(m), np.nan), "°", words=words)
    return replace(
        angle, sentence=f"{angle.sentence}. Two coordinates describe little of a trajectory in millions of dimensions"
    )


def _largest(measurement: Measurement) -> float:
    angles = np.degrees(np.asarray(measurement.values["angle"], dtype=float))
    return float(np.nanmax(angles)) if np.isfinite(angles).any() else float("nan")
