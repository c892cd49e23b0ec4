"""The loss on a plane through the weights: a 3-D surface, its contours, and NLL alone (HDVW Figs. 1a and C.4a).

Shape legend: G points along each side of the grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import GREY, SEQUENTIAL, Figure, empty_plot, line, plain
from vitlab.reporting.headline import Headline, Phrase, describe_number
from vitlab.reporting.layer_plots import known
from vitlab.reporting.panels import on_panel, panels, panels_with_own_axes

_PAPER = "HDVW Figs. 1a and C.4a"
_MOST = 64  # the maximum number of drawn points along a side


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Contours and surfaces of NLL + ℓ2 on one scale for all models; then slices of NLL alone.

    Planes without a finite loss are skipped.
    """
    seen = [measurement for measurement in measurements if known(measurement, "total")]
    if not seen:
        return []
    return [
        Figure(_finding(measurements, "total", "NLL + weight decay (ℓ2)"), _PAPER, _contours(seen)),
        Figure(_share_finding(measurements), _PAPER, _surfaces(seen)),
        Figure(_finding(measurements, "nll", "NLL alone"), "", _slices(measurements)),
    ]


def _surfaces(measurements: Sequence[Measurement]) -> Any:
    """The loss of each model, on height axes of the same length: equal slopes look equal."""
    import plotly.graph_objects as go

    plot = _scenes([measurement.subject for measurement in measurements])
    span, step = _span(measurements), _step(measurements)
    for index, measurement in enumerate(measurements):
        alpha, beta, loss = _grid(measurement, "total")
        low = float(np.nanmin(loss, initial=np.inf)) if np.isfinite(loss).any() else 0.0
        look = {"cmin": 0, "cmax": span, "colorscale": SEQUENTIAL, "showscale": not index}
        bar = {"title": {"text": "above the<br>lowest, nats"}, "len": 0.6, "thickness": 14}
        floor = {"z": {"show": True, "color": GREY, "project_z": True, "start": low, "end": low + span, "size": step}}
        hover = "α %{y:.2f}, β %{x:.2f}: loss %{z:.4g} nats<extra></extra>"
        surface = go.Surface(x=beta, y=alpha, z=loss, surfacecolor=loss - low, contours=floor, hovertemplate=hover)
        surface.update(
            name=plain(measurement.subject), colorbar=bar, scene=f"scene{index + 1}" if index else "scene", **look
        )
        plot.add_trace(surface)
        height = {"range": [low - 0.15 * span, low + 1.02 * span], "title": {"text": "loss, nats"}}
        plot.layout[surface.scene].zaxis.update(height)
    return plot


def _scenes(titles: Sequence[str]) -> Any:
    """A 3-D scene for each title, three per row."""
    from plotly.subplots import make_subplots

    columns = min(3, len(titles))
    rows = -(-len(titles) // columns)
    shape = {"rows": rows, "cols": columns, "specs": [[{"type": "scene"}] * columns] * rows}
    plot = make_subplots(**shape, subplot_titles=[plain(title) for title in titles], horizontal_spacing=0.02)
    look = empty_plot("", "", height=60 + 380 * rows).layout
    for key in ("template", "paper_bgcolor", "font", "height"):
        plot.layout[key] = look[key]
    plot.update_layout(margin={"l": 8, "r": 8, "t": 48, "b": 8})
    axis = {
        "gridcolor": GREY,
        "gridwidth": 1,
        "showbackground": False,
        "zeroline": False,
        "tickfont": {"size": 11},
        "nticks": 5,
    }
    eye = {"x": 1.45, "y": -1.55, "z": 0.8}
    plot.update_scenes(xaxis=axis, yaxis=axis, zaxis=axis, camera_eye=eye, aspectmode="cube")
    plot.update_scenes(xaxis_title_text="β", yaxis_title_text="α")
    return plot


def _contours(measurements: Sequence[Measurement]) -> Any:
    """Contours of the rise of the loss above that at the model's weights."""
    import plotly.graph_objects as go

    names = [measurement.subject for measurement in measurements]
    plot = panels(names, "β, second direction", "α, first direction", height=280 if len(names) > 2 else 340)
    span, step = _span(measurements), _step(measurements)
    for index, measurement in enumerate(measurements):
        alpha, beta, loss = _grid(measurement, "total")
        steps = {"start": _lowest(measurements, step), "end": span, "size": step, "showlabels": True}
        hover = "α %{y:.2f}, β %{x:.2f}: %{z:+.4g} nats<extra></extra>"
        rise = np.round(loss - _own(measurement, "total"), 6)
        contour = go.Contour(x=beta, y=alpha, z=rise, contours=steps, hovertemplate=hover, coloraxis="coloraxis")
        axes = on_panel(index)
        plot.add_trace(contour.update(name=plain(measurement.subject), **axes))
        plot.layout[axes["xaxis"].replace("x", "xaxis")].constrain = "domain"
        square = {"scaleanchor": axes["xaxis"], "constrain": "domain"}  # both directions at one scale
        plot.layout[axes["yaxis"].replace("y", "yaxis")].update(square)
    bar = {"title": {"text": "rise of NLL + ℓ2, nats", "side": "right"}, "thickness": 14}
    plot.update_layout(coloraxis={"colorscale": SEQUENTIAL, "cmin": 0, "cmax": span, "colorbar": bar})
    return plot


def _slices(measurements: Sequence[Measurement]) -> Any:
    """NLL along both directions through the model's weights: the curvature of the surfaces is mostly that of ℓ2."""
    plot = panels_with_own_axes(
        ["along the first direction", "along the second direction"], ["α", "β"], ["NLL, nats"] * 2
    )
    for index, measurement in enumerate(measurements):
        alpha, beta, loss = _grid(measurement, "nll")
        slices = (alpha, loss[:, _middle(beta)]), (beta, loss[_middle(alpha)])
        for panel, (x, y) in enumerate(slices):
            group = {"legendgroup": str(index), "showlegend": panel == 0, **on_panel(panel)}
            line(plot, x.tolist(), y, measurement.subject, index, **group)
    plot.update_yaxes(hoverformat=".4g")
    return plot


def _finding(measurements: Sequence[Measurement], name: str, loss: str) -> Headline:
    what = f"Mean rise of {loss} to the edge of the plane"
    subject = "The loss surface is" if name == "total" else "The surface of the NLL alone is"
    claim = Phrase(subject, ("flatter", "sharper"))
    return describe_number(what, measurements, lambda m: (_rise(m, name), np.nan), "nats", claim=claim)


def _share_finding(measurements: Sequence[Measurement]) -> Headline:
    """The share of the rise that is due to the ℓ2 term, which does not depend on the data."""
    what = "Share of the ℓ2 term in the rise to the edge of the plane"
    return describe_number(
        what, measurements, lambda m: (_share(m), np.nan), "%", claim=Phrase("The share of the ℓ2 term is")
    )


def _share(measurement: Measurement) -> float:
    part, whole = _rise(measurement, "l2"), _rise(measurement, "total")
    return 100 * part / whole if whole > 0 else np.nan


def _grid(measurement: Measurement, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """α, β and the losses (α, β) at the drawn points, NaN if not finite; the model's weights are among the points."""
    loss = np.asarray(measurement.values[name], dtype=float)
    alpha, beta = (np.array(measurement.axes[axis], dtype=float) for axis in measurement.dims[name])
    step = -(-len(alpha) // _MOST)
    rows, columns = (slice(_middle(along) % step, None, step) for along in (alpha, beta))
    kept = np.round(np.where(np.isfinite(loss), loss, np.nan)[rows, columns], 6)
    return alpha[rows].round(6), beta[columns].round(6), kept


def _middle(steps: np.ndarray) -> int:
    return int(np.abs(steps).argmin())


def _own(measurement: Measurement, name: str) -> float:
    """The loss at the model's weights, or at the nearest point of the grid."""
    alpha, beta = (np.array(measurement.axes[axis], dtype=float) for axis in measurement.dims[name])
    return float(np.asarray(measurement.values[name])[_middle(alpha), _middle(beta)])


def _rise(measurement: Measurement, name: str) -> float:
    """The mean loss over the border minus the loss at the model's weights."""
    loss = np.asarray(measurement.values[name], dtype=float)
    border = np.concatenate([loss[0], loss[-1], loss[1:-1, 0], loss[1:-1, -1]])
    known = border[np.isfinite(border)]
    return float(known.mean()) - _own(measurement, name) if len(known) else float("nan")


def _span(measurements: Sequence[Measurement]) -> float:
    """The largest range of NLL + ℓ2 over the planes."""
    losses = [np.asarray(measurement.values["total"], dtype=float) for measurement in measurements]
    return max((float(np.ptp(loss[np.isfinite(loss)])) for loss in losses if np.isfinite(loss).any()), default=0) or 1.0


def _step(measurements: Sequence[Measurement]) -> float:
    """The distance between contours, about a tenth of the range: 1, 2 or 5 times a power of ten."""
    rough = _span(measurements) / 10
    power = 10.0 ** np.floor(np.log10(rough))
    return float(power * next(digit for digit in (1, 2, 5, 10) if digit * power >= 0.99 * rough))


def _lowest(measurements: Sequence[Measurement], step: float) -> float:
    """The first contour: a multiple of `step` below the lowest rise of any plane."""
    depths = [np.asarray(m.values["total"], dtype=float) - _own(m, "total") for m in measurements]
    lowest = min((float(depth[np.isfinite(depth)].min()) for depth in depths if np.isfinite(depth).any()), default=0.0)
    return float(np.floor(lowest / step) * step)
