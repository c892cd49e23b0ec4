"""The part of the weights' gradient that passes a broadcast term, by its place in the block (CB Sec. 4.1, B.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, heat_map, labels, line, plain
from vitlab.reporting.panels import on_panel, panels, rounded, share_y_axis
from vitlab.reporting.readings import mean

_PAPER = "CB Sec. 4.1, Table 4b"
_PLACES = {"mlp.in": "Front", "mlp.mid": "Mid", "mlp.out": "End"}
_PARTS = {"through": "passes a term", "changed": "changes with the term"}


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """The part of the gradient that passes a term, by place: of each block, and of each weight."""
    return [_by_block(measurements), _by_weight(measurements)]


def ratio(measurement: Measurement, name: str, *, by_weight: bool = False) -> np.ndarray:
    """Norm of a part of the gradient over that of the whole, in percent: (seam, block), or (seam, block, weight).

    Norms of the weights of a block are combined as roots of sums of squares. The ratio exceeds 100 if parts cancel.
    """
    part, total = (np.asarray(measurement.values[key], dtype=float) for key in (name, "total"))
    if not by_weight:
        part, total = (np.sqrt(np.nansum(norm**2, 2)) for norm in (part, total))
    return 100 * part / np.where(total > 0, total, np.nan)


def _by_block(measurements: Sequence[Measurement]) -> Figure:
    parts = {name: text for name, text in _PARTS.items() if all(name in m.values for m in measurements)}
    titles = [f"{measurement.subject}: {text}" for measurement in measurements for text in parts.values()]
    plot = panels(titles, "block", "% of the gradient's norm", columns=len(parts), height=260)
    for panel, (measurement, name) in enumerate((m, name) for m in measurements for name in parts):
        found = ratio(measurement, name)
        for index, seam in enumerate(measurement.axes["seam"]):
            look = {"showlegend": False, "legendgroup": str(seam), "hovertemplate": "block %{x}: %{y:.1f} %"}
            x, name = list(range(1, found.shape[1] + 1)), f"{titles[panel]}, {_place(seam)}"
            line(plot, x, found[index], name, index, **look, **on_panel(panel))
    for index, seam in enumerate(_seams(measurements)):
        line(plot, [None], [np.nan], _place(seam), index, legendgroup=str(seam))  # the legend, once for all panels
    plot.update_yaxes(rangemode="tozero")
    for column in range(len(parts)):
        share_y_axis(plot, range(column, len(titles), len(parts)))
    return Figure(_finding(measurements), _PAPER, plot)


def _finding(measurements: Sequence[Measurement]) -> str:
    parts = []
    for measurement in measurements:
        pairs = zip(measurement.axes["seam"], ratio(measurement, "through"), strict=True)
        shares = {_place(seam): mean(row) for seam, row in pairs}
        known = [f"{share:.1f} % at {place}" for place, share in shares.items() if np.isfinite(share)]
        parts.append(f"{', '.join(known) or 'not known'} in {measurement.subject}")
    return "Part of the weights' gradient that passes a broadcast term: " + "; ".join(parts)


def _by_weight(measurements: Sequence[Measurement]) -> Figure:
    seams = _seams(measurements)
    titles = [f"{measurement.subject}: {_place(seam)}" for measurement in measurements for seam in seams]
    weights = max(np.shape(measurement.values["through"])[2] for measurement in measurements)
    plot = panels(titles, "block", "", columns=len(seams), height=60 + 17 * weights, legend=False)
    tables = [ratio(measurement, "through", by_weight=True) for measurement in measurements]
    top = min(100.0, max((float(np.nanmax(table)) for table in tables if np.isfinite(table).any()), default=1.0))
    best = (-np.inf, "")
    for row, (measurement, table) in enumerate(zip(measurements, tables, strict=True)):
        names = [str(label) for label in labels(measurement, "through", 2)]
        for seam in measurement.axes["seam"]:
            found = table[list(measurement.axes["seam"]).index(seam)].T  # (weight, block)
            panel = row * len(seams) + list(seams).index(seam)
            look: dict[str, Any] = {
                "zmin": 0,
                "zmax": top,
                "colorbar": {"title": {"text": "%", "side": "right"}, "thickness": 14},
            }
            name = plain(titles[panel])
            hover = "%{y} of block %{x}: %{z:.1f} %"
            heat_map(
                plot, rounded(found), list(range(1, found.shape[1] + 1)), names, hovertemplate=hover, name=name, **look
            )
            plot.data[-1].update(**on_panel(panel), showscale=panel == 0)
            if panel % len(seams):
                plot.layout[on_panel(panel)["yaxis"].replace("y", "yaxis")].showticklabels = False
            best = max(best, _largest(found, names, f"{_place(seam)} of {measurement.subject}"))
    plot.update_yaxes(autorange="reversed", tickfont_size=11)
    return Figure(best[1], _PAPER, plot)


def _largest(found: np.ndarray, names: Sequence[str], where: str) -> tuple[float, str]:
    if not np.isfinite(found).any():
        return -np.inf, "No weight has a gradient"
    weight, block = divmod(int(np.nanargmax(found)), found.shape[1])
    value = float(found[weight, block])
    part = f"{value:.1f} % of its gradient's norm passes terms at {where}"
    return value, f"Largest part: {names[weight]} of block {block + 1}, {part}"


def _seams(measurements: Sequence[Measurement]) -> tuple[Any, ...]:
    """The places of the model with the most places."""
    return max((measurement.axes["seam"] for measurement in measurements), key=lambda seams: len(seams))


def _place(seam: object) -> str:
    return _PLACES.get(str(seam), str(seam))
