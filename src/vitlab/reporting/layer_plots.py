"""Curves over the layers of models: means over heads as lines, heads as dots, percentiles as a band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import band, by_layer, colour, empty_plot, labels, line, marker, plain, reference
from vitlab.reporting.headline import Headline, describe_number
from vitlab.reporting.panels import on_panel
from vitlab.reporting.readings import reading


def known(measurement: Measurement, name: str) -> bool:
    """Whether a measurement has a value with at least one finite number."""
    value = np.asarray(measurement.values.get(name, np.nan), dtype=float)
    return bool(np.isfinite(value).any())


def curves(
    measurements: Sequence[Measurement],
    name: str,
    y: str,
    *,
    heads: bool = True,
    tails: tuple[str, str] | None = None,
    plot: Any = None,
    panel: int = 0,
) -> Any:
    """Draw a line over depth for each model that has the value.

    Args:
        measurements: one per model.
        name: the value, (layer) or (layer, head).
        y: the title of the axis, with the unit.
        heads: show each head as a dot, shifted per model so that dots do not overlap.
        tails: the two values between which a band is drawn.
        plot: an existing plot to draw into.
        panel: the index of the panel in `plot`.
    """
    plot = empty_plot("layer", y) if plot is None else plot
    plot.update_layout(hovermode="closest")
    depths = []
    for index, measurement in enumerate(measurements):
        if not known(measurement, name):
            continue
        where = {"legendgroup": str(index), **on_panel(panel)}
        x = labels(measurement, name)
        depths.append(len(x))
        if tails is not None and all(known(measurement, tail) for tail in tails):
            _band(plot, measurement, tails, index, **where)
        if heads:
            _dots(plot, measurement, name, index, 0.12 * (index - (len(measurements) - 1) / 2), **where)
        new = not any(trace.legendgroup == str(index) and trace.showlegend for trace in plot.data)
        look = {"showlegend": new, "hovertemplate": "layer %{x}: %{y:.4g}", **where}
        errors = error_by_layer(measurement, name)
        line(plot, x, by_layer(measurement, name), measurement.subject, index, error=errors, **look)
    axis = on_panel(panel)["xaxis"].replace("x", "xaxis")
    plot.layout[axis].update(dtick=max(1, -(-max(depths, default=1) // 16)), tick0=1)
    return plot


def bounds(plot: Any, measurements: Sequence[Measurement], name: str, text: str) -> None:
    """Draw a dotted reference line over depth for each model; a single one, the longest, if all agree."""
    seen: list[np.ndarray] = []
    for measurement in sorted(measurements, key=lambda m: -np.size(m.values.get(name, ()))):
        if not known(measurement, name):
            continue
        value = np.asarray(measurement.values[name], dtype=float)
        if not any(np.allclose(value, other[: len(value)], equal_nan=True) for other in seen):
            reference(plot, labels(measurement, name), value, f"{text}, {measurement.subject}")
            seen.append(value)
    if len(seen) == 1:
        plot.data[-1].name = plain(text)


def error_by_layer(measurement: Measurement, name: str) -> np.ndarray | None:
    """Standard errors along the first axis: the mean over heads, an upper bound of the error of their mean."""
    error = measurement.errors.get(name, "")
    return by_layer(measurement, error) if known(measurement, error) else None


def deep_half_finding(
    measurements: Sequence[Measurement], name: str, what: str, unit: str = "", **words: Any
) -> Headline:
    """The result of the mean over the second half of the layers; `words` are arguments of `describe_number`."""
    what = f"{what} in the deep half of the layers"
    return describe_number(what, measurements, reading(name, deep=True), unit, name=name, **words)


def _band(plot: Any, measurement: Measurement, tails: tuple[str, str], index: int, **where: Any) -> None:
    low, high = (by_layer(measurement, tail) for tail in tails)
    both = np.isfinite(low) & np.isfinite(high)  # a gap would split the edge of the region
    x = np.array(labels(measurement, tails[0]))[both].tolist()
    between = " to ".join(f"{tail.removeprefix('pooled_').removeprefix('p')}th" for tail in tails)
    band(plot, x, low[both], high[both], index, name=f"{measurement.subject}, {between} percentile")
    plot.data[-1].update(where)


def _dots(plot: Any, measurement: Measurement, name: str, index: int, shift: float, **where: Any) -> None:
    import plotly.graph_objects as go

    table = np.asarray(measurement.values[name], dtype=float)
    if table.ndim != 2 or table.shape[1] < 2:
        return
    layer, head = np.nonzero(np.isfinite(table))
    plot.add_trace(
        go.Scatter(
            x=(layer + 1 + shift).tolist(),
            y=table[layer, head].tolist(),
            customdata=np.stack((layer + 1, head + 1), 1).tolist(),
            name=plain(f"{measurement.subject}, heads"),
            mode="markers",
            marker={"color": colour(index), "symbol": marker(index), "size": 5, "opacity": 0.55},
            hovertemplate="layer %{customdata[0]}, head %{customdata[1]}: %{y:.4g}",
            showlegend=False,
            **where,
        )
    )
