"""Values along the residual stream, shaded as in HDVW: MSA grey, Conv and MLP white, subsampling blue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import line, plain
from vitlab.reporting.panels import on_panel, panels
from vitlab.reporting.readings import mean

SHADES = {
    "MSA": "rgba(128,128,128,0.30)",
    "subsampling": "rgba(86,180,233,0.40)",
    "other mixing": "rgba(230,159,0,0.25)",
}
_WHITE = ("MLP", "Conv", "")


@dataclass(frozen=True)
class Stream:
    """The places of a residual stream that are drawn, and the steps between them.

    Args:
        keep: indices of the places in the measurement. The input of a block is skipped if it is the previous output.
        labels: such as `blocks.0 mid`.
        kinds: the kind of each step between two places: `MSA`, `MLP`, `Conv`, `subsampling`, … or empty.
    """

    keep: tuple[int, ...]
    labels: tuple[str, ...]
    kinds: tuple[str, ...]


def stream(measurement: Measurement, name: str) -> Stream:
    """The places of a measurement in order of depth; places with equal values of `name` are merged."""
    labels = [str(label) for label in measurement.axes["place"]]
    grids = np.asarray(measurement.values.get("grid", np.zeros((len(labels), 2))))
    value = np.asarray(measurement.values[name], dtype=float)
    between = _steps(labels, [str(step) for step in measurement.axes.get("step", ())])
    keep = [0]
    kinds: list[str] = []
    for i in range(1, len(labels)):
        resized = bool((grids[i] != grids[i - 1]).any())
        if (i - 1, i) not in between and not resized and _equal(value[i], value[i - 1]):
            continue  # the same map: the output of a block is the input of the next
        keep.append(i)
        kinds.append(between.get((i - 1, i), "subsampling" if resized else ""))
    return Stream(tuple(keep), tuple(labels[i] for i in keep), tuple(kinds))


def along_depth(measurements: Sequence[Measurement], name: str, y: str) -> Any:
    """Draw a value at every place of the stream; models with the same steps share a panel.

    Args:
        measurements: one per model.
        name: the value, (place).
        y: the title of the axis, with the unit.
    """
    streams = [stream(measurement, name) for measurement in measurements]
    groups = group_by_steps(streams)
    titles = [", ".join(measurements[index].subject for index in group) for group in groups]
    height = 260 if len(groups) == 1 else 200
    plot = panels(titles if len(groups) > 1 else [""], "block, numbered at its output", y, columns=1, height=height)
    for panel, group in enumerate(groups):
        shade(plot, streams[group[0]], panel)
        for index in group:
            one, measurement = streams[index], measurements[index]
            y_values, error = (
                _at_places(measurement, value, one) for value in (name, measurement.errors.get(name, ""))
            )
            text = [plain(label) for label in one.labels]
            look = {"text": text, "hovertemplate": "%{text}: %{y:.4g}", "mode": "lines+markers", **on_panel(panel)}
            line(plot, streams[group[0]].labels, y_values, measurement.subject, index, error=error, **look)
    legend_of_shades(plot, streams)
    return plot


def group_by_steps(streams: Sequence[Stream]) -> list[list[int]]:
    """Indices of models grouped by panel: models with the same steps share one."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, one in enumerate(streams):
        groups.setdefault(one.kinds, []).append(index)
    return list(groups.values())


def shade(plot: Any, one: Stream, panel: int) -> None:
    """Shade the steps of a panel and number its blocks."""
    axes = on_panel(panel)
    look = {"type": "rect", "xref": axes["xaxis"], "yref": f"{axes['yaxis']} domain", "y0": 0, "y1": 1}
    shapes = [
        {**look, "x0": i, "x1": i + 1, "fillcolor": SHADES[tone(kind)], "line": {"width": 0}, "layer": "below"}
        for i, kind in enumerate(one.kinds)
        if tone(kind) in SHADES
    ]
    plot.layout.shapes = [*plot.layout.shapes, *shapes]
    names = [label.rpartition(" ")[0] for label in one.labels]
    ends = [i for i, name in enumerate(names) if i + 1 == len(names) or names[i + 1] != name]
    every = max(1, -(-len(ends) // 16))
    ticks = {"tickvals": ends[every - 1 :: every], "ticktext": list(range(every, len(ends) + 1, every))}
    plot.layout[axes["xaxis"].replace("x", "xaxis", 1)].update(**ticks, showgrid=False, type="category")


def legend_of_shades(plot: Any, streams: Sequence[Stream]) -> None:
    """Add the shades to the legend."""
    import plotly.graph_objects as go

    tones = dict.fromkeys(tone(kind) for one in streams for kind in one.kinds)
    for name in (name for name in SHADES if name in tones):
        mark = {"symbol": "square", "size": 14, "color": SHADES[name]}
        plot.add_trace(go.Scatter(x=[None], y=[None], mode="markers", marker=mark, name=name))


def tone(kind: str) -> str:
    """The shade of a step: pooling and MLPs over tokens mix tokens but are not MSA."""
    return kind if kind in SHADES or kind in _WHITE else "other mixing"


def effects(measurement: Measurement, *, brief: bool = False) -> str:
    """The effect of each kind of step on a value, as a sentence; the brief form gives means only.

    >>> values, dims = {"change": np.array([-1.0, 2.0, -2.0])}, {"change": ("step",)}
    >>> effects(Measurement("k", "a", values, dims, {"step": ("b0 MSA", "b0 MLP", "b1 MSA")}))
    'MSA lowers it in 2 of 2 steps (mean -1.5), MLP raises it in 1 of 1 steps (mean +2)'
    """
    change = np.asarray(measurement.values["change"], dtype=float)
    kinds = [_kind(str(step)) for step in measurement.axes["step"]]
    parts = []
    for kind in dict.fromkeys(kinds):
        own = change[[i for i, other in enumerate(kinds) if other == kind]]
        own = own[np.isfinite(own)]
        average = mean(own)
        if own.size and brief:
            parts.append(f"{kind} {average:+.2g} per step")
        elif own.size:
            up, down = int((own > 0).sum()), int((own < 0).sum())
            both = up and down
            most = (
                f"raises it in {up} and lowers it in {down}"
                if both
                else f"{'raises' if up else 'lowers'} it in {up or down}"
            )
            parts.append(f"{kind} {most} of {len(own)} steps (mean {average:+.2g})")
    return ", ".join(parts) or "no step is known"


def _steps(places: Sequence[str], steps: Sequence[str]) -> dict[tuple[int, int], str]:
    """The kind of the step between two neighbouring places of one block, in the order of the names."""
    found: dict[tuple[int, int], str] = {}
    blocks = [place.rpartition(" ")[0] for place in places]
    for block in dict.fromkeys(blocks):
        own = [i for i, other in enumerate(blocks) if other == block]
        kinds = [_kind(step) for step in steps if step.removesuffix(f" {_kind(step)}") == block]
        if len(kinds) == len(own) - 1:
            found |= dict(zip(pairwise(own), kinds, strict=True))
    return found


def _kind(step: str) -> str:
    return "token MLP" if step.endswith(" token MLP") else step.rpartition(" ")[2]


def _at_places(measurement: Measurement, name: str, one: Stream) -> np.ndarray | None:
    return np.asarray(measurement.values[name], dtype=float)[list(one.keep)] if name in measurement.values else None


def _equal(a: float, b: float) -> bool:
    return a == b or bool(np.isnan(a) and np.isnan(b))
