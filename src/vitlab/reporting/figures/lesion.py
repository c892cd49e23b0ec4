"""Loss of accuracy without one unit: bars by unit, coloured by MSA, MLP and Conv (HDVW Figs. 10b, D.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import NORMAL
from vitlab.reporting.drawing import GREY, Figure, bars, plain
from vitlab.reporting.findings import verdict, with_error
from vitlab.reporting.headline import Headline, Phrase, describe_number
from vitlab.reporting.layer_plots import known
from vitlab.reporting.panels import on_panel, panels, share_y_axis
from vitlab.reporting.readings import mean, reading

_PAPER = "HDVW Figs. 10b, D.4"
_BESIDE = 26  # the most units of a model whose panel is beside those of other models
_PATTERNS = {"MSA": "", "MLP": "/", "Conv": "x"}  # for print in grey


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Change of accuracy and of the negative log-likelihood without each unit; 95 % bars of paired differences."""
    figures = [_bars(measurements, "change", "Δ accuracy, points", 100.0)]
    with_loss = [measurement for measurement in measurements if known(measurement, "nll_change")]
    if with_loss:
        figures.append(_bars(with_loss, "nll_change", "Δ NLL, nats", 1.0))
    return figures


def _bars(measurements: Sequence[Measurement], name: str, y: str, scale: float) -> Figure:
    titles = [measurement.subject for measurement in measurements]
    units = max(len(measurement.axes["unit"]) for measurement in measurements)
    columns = 3 if units <= _BESIDE else 1
    height = 240 if columns > 1 else max(180, 340 - 40 * len(measurements))
    plot = panels(titles, "block", y, columns=columns, height=height)
    for panel, measurement in enumerate(measurements):
        _units(plot, measurement, name, scale, panel)
        _blocks(plot, measurement, panel)
    for kind in _kinds(measurements).split(" or "):  # the legend, once for all panels
        if kind in _PATTERNS:
            look = {"marker_color": GREY, "marker_pattern": _pattern(kind), "legendgroup": kind}
            bars(plot, [None], [np.nan], kind, 0, **look)
    plot.update_layout(barmode="overlay")
    plot.update_yaxes(zeroline=True, zerolinecolor=GREY)
    share_y_axis(plot, range(len(measurements)))
    return Figure(_headline(measurements, name, scale), _PAPER, plot)


def _units(plot: Any, measurement: Measurement, name: str, scale: float, panel: int) -> None:
    """A bar for each unit of a model in the model's colour, one pattern per kind."""
    change, error = _changes(measurement, name, scale)
    units = [str(unit) for unit in measurement.axes["unit"]]
    for kind in _PATTERNS:
        own = [i for i, unit in enumerate(units) if unit.endswith(f" {kind}")]
        if own:
            look = {"marker_pattern": _pattern(kind), "width": 0.85, "legendgroup": kind, "showlegend": False}
            look |= {"customdata": [plain(units[i]) for i in own], **on_panel(panel)}
            look["hovertemplate"] = "without %{customdata}: %{y:+.3g}"
            error_bars = None if error is None else error[own]
            bars(plot, own, change[own], f"{measurement.subject}, {kind}", panel, error=error_bars, **look)


def _changes(measurement: Measurement, name: str, scale: float) -> tuple[np.ndarray, np.ndarray | None]:
    """The change of each unit and its standard error, if known."""
    error = measurement.errors.get(name, "")
    error_bars = scale * np.asarray(measurement.values[error], dtype=float) if known(measurement, error) else None
    return scale * np.asarray(measurement.values[name], dtype=float), error_bars


def _blocks(plot: Any, measurement: Measurement, panel: int) -> None:
    """Number the blocks below their units, and draw a line at the start of each stage."""
    axes = on_panel(panel)
    units = len(measurement.axes["unit"])
    block = np.asarray(measurement.values.get("block", np.arange(units)), dtype=float)
    stage = np.asarray(measurement.values.get("stage", np.zeros(units)), dtype=float)
    firsts = [i for i in range(units) if i == 0 or block[i] != block[i - 1]]
    every = -(-len(firsts) // 24)
    shown = [block[i] for i in firsts[::every]]
    ticks = {"tickvals": [mean(np.flatnonzero(block == b)) for b in shown], "ticktext": [f"{b + 1:.0f}" for b in shown]}
    plot.layout[axes["xaxis"].replace("x", "xaxis")].update(**ticks, showgrid=False, range=[-0.7, units - 0.3])
    begins = [i - 0.5 for i in range(1, units) if stage[i] != stage[i - 1]]
    stroke = {"type": "line", "xref": axes["xaxis"], "yref": f"{axes['yaxis']} domain", "y0": 0, "y1": 1}
    lines = [{**stroke, "x0": x, "x1": x, "line": {"color": GREY, "dash": "dot", "width": 1}} for x in begins]
    plot.layout.shapes = [*plot.layout.shapes, *lines]


def _headline(measurements: Sequence[Measurement], name: str, scale: float) -> Headline:
    """The mean change over all units in the claim and the table; the largest change in the sentence."""
    accuracy = name == "change"
    what, unit = ("accuracy", "points") if accuracy else ("NLL", "nats")
    words = ("more accuracy", "less accuracy") if accuracy else ("less likelihood", "more likelihood")
    mean_change = describe_number(
        f"Mean change of {what} without one unit ({_kinds(measurements)})",
        measurements,
        reading(name, scale),
        unit,
        claim=Phrase("Removing one unit costs", words),
        name=name,
    )
    return replace(mean_change, sentence=_finding(measurements, name, scale))


def _finding(measurements: Sequence[Measurement], name: str, scale: float) -> str:
    """The unit whose removal costs most, with its 95 % interval; the largest of many changes is biased upwards."""
    unit, worse = ("points", -1) if name == "change" else ("nats", 1)
    parts = []
    for measurement in measurements:
        change, error = _changes(measurement, name, scale)
        if not np.isfinite(change).any() or np.nanmax(worse * change) <= 0:
            nothing = "none" if np.isfinite(change).any() else "not known"
            parts.append(f"{nothing} in {measurement.subject}")
            continue
        worst = int(np.nanargmax(worse * change))
        half = NORMAL * float(error[worst]) if error is not None else float("nan")
        size = verdict(change[worst], half, 0.0)
        noise = "" if size.startswith("larger") else f", {size}"
        largest = with_error(change[worst], half, sign="+", noisy=False)
        lost = (
            f"{largest} {unit}{noise}, largest of {np.isfinite(change).sum()}{_as_large(worse * change, worst, half)}"
        )
        parts.append(f"{_unit(measurement, worst)} in {measurement.subject} ({lost})")
    return f"The unit whose removal costs most: {', '.join(parts)}"


def _as_large(loss: np.ndarray, worst: int, half: float) -> str:
    """The number of other units inside the interval of the largest loss, or with the same loss if it has none."""
    others = int((loss >= loss[worst] - (half if np.isfinite(half) else 1e-9)).sum()) - 1
    where = "inside its interval" if np.isfinite(half) else "with the same change"
    return f", {others} other{'s' if others > 1 else ''} {where}" if others else ""


def _kinds(measurements: Sequence[Measurement]) -> str:
    """The kinds of the units of all models, such as `MSA or MLP`."""
    kinds = {str(unit).rpartition(" ")[2] for measurement in measurements for unit in measurement.axes["unit"]}
    return " or ".join(kind for kind in _PATTERNS if kind in kinds) or "of any kind"


def _unit(measurement: Measurement, place: int) -> str:
    """The name of a unit with the number of its block on the axis."""
    name = str(measurement.axes["unit"][place])
    if "block" not in measurement.values:
        return name
    return f"{name.rpartition(' ')[2]} of block {int(measurement.values['block'][place]) + 1}"


def _pattern(kind: str) -> dict[str, Any]:
    return {"shape": _PATTERNS[kind], "fillmode": "overlay", "size": 7, "solidity": 0.2}
