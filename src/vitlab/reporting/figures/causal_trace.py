"""Causal trace: how much of a prediction clean activations restore, by layer, head and token cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import GREY, Figure, heat_map, line, plain
from vitlab.reporting.layer_plots import known
from vitlab.reporting.panels import on_panel, panels, rounded, share_y_axis

_PLACES = {"prefix": "class token", "attention": "attention", "mlp": "MLP", "tokens": "best cell of tokens"}
_BAR = {"title": {"text": "points", "side": "top"}, "thickness": 14}
_PANELS = 6  # layers whose token maps are shown


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Effects by layer; by layer and token; by layer and head; and on the token grid of some layers."""
    figures = [_by_layer(measurements), _by_token(measurements)]
    with_heads = [measurement for measurement in measurements if known(measurement, "heads")]
    if with_heads:
        figures.append(_by_head(with_heads))
    return [*figures, *(_on_grid(measurement) for measurement in measurements)]


def effect(measurement: Measurement, place: str) -> np.ndarray:
    """The effect of a place by layer, in points: of the first prefix token, or of the best cell.

    >>> values = {"prefix": np.array([[0.1, 0.9]]), "tokens": np.array([[[0.2, 0.3]]])}
    >>> dims = {"prefix": ("layer", "prefix"), "tokens": ("layer", "row", "column")}
    >>> found = Measurement("causal_trace", "a", values, dims)
    >>> effect(found, "prefix").tolist(), effect(found, "tokens").tolist()
    ([10.0], [30.0])
    """
    value = 100 * np.asarray(measurement.values[place], dtype=float)
    if place == "prefix":
        return value[:, 0]
    return np.nanmax(value.reshape(len(value), -1), axis=1) if place == "tokens" else value


def _by_layer(measurements: Sequence[Measurement]) -> Figure:
    plot = panels([_title(each) for each in measurements], "layer", "restored probability, points", height=260)
    shown = set()
    for panel, measurement in enumerate(measurements):
        where = on_panel(panel)
        for index, (place, name) in enumerate(_PLACES.items()):
            if not known(measurement, place):
                continue
            y = effect(measurement, place)
            look: dict[str, Any] = {"legendgroup": place, "showlegend": place not in shown, **where}
            look["hovertemplate"] = f"{name}, layer %{{x}}: %{{y:.1f}} points"
            line(plot, list(range(1, len(y) + 1)), y, name, index, **look)
            shown.add(place)
        total = 100 * float(measurement.values["total_effect"])
        rule = {"type": "line", "xref": f"{where['xaxis']} domain", "x0": 0, "x1": 1, "yref": where["yaxis"]}
        stroke = {"color": GREY, "dash": "dot", "width": 1}
        plot.layout.shapes = [*plot.layout.shapes, {**rule, "y0": total, "y1": total, "line": stroke}]
    share_y_axis(plot, range(len(measurements)))
    plot.update_yaxes(zeroline=True, zerolinecolor=GREY)
    return Figure(_finding(measurements), "", plot)


def _finding(measurements: Sequence[Measurement]) -> str:
    """The place and layer that restore most before the last layer, whose class token is the prediction itself."""
    parts = []
    for measurement in measurements:
        names = [place for place in _PLACES if known(measurement, place)]
        effects = {place: effect(measurement, place)[:-1] for place in names}
        effects = {place: values for place, values in effects.items() if np.isfinite(values).any()}
        if not effects:
            parts.append(f"not known for {measurement.subject}")
            continue
        best = max(effects, key=lambda place: float(np.nanmax(effects[place])))
        layer = int(np.nanargmax(effects[best])) + 1
        total = 100 * float(measurement.values["total_effect"])
        parts.append(
            f"the {_PLACES[best]} of layer {layer} in {_title(measurement)} "
            f"({float(np.nanmax(effects[best])):.1f} of {total:.1f} points)"
        )
    return f"Restores most of the clean prediction: {'; '.join(parts)}"


def by_token(measurement: Measurement) -> tuple[np.ndarray, list[str]]:
    """The effects (layer, token) in points, of the prefix tokens, then of the cells row by row, and their names.

    >>> values = {"prefix": np.array([[0.1], [0.9]]), "tokens": np.array([[[0.2, 0.3]], [[0.0, 0.1]]])}
    >>> dims = {"prefix": ("layer", "prefix"), "tokens": ("layer", "row", "column")}
    >>> effects, names = by_token(Measurement("causal_trace", "a", values, dims))
    >>> effects.tolist(), names
    ([[10.0, 20.0, 30.0], [90.0, 0.0, 10.0]], ['class token', 'row 1, column 1', 'row 1, column 2'])
    """
    cells = np.asarray(measurement.values["tokens"], dtype=float)
    prefix = np.asarray(measurement.values.get("prefix", np.empty((len(cells), 0))), dtype=float)
    names = [f"prefix token {index + 1}" if index else "class token" for index in range(prefix.shape[1])]
    names += [f"row {row + 1}, column {column + 1}" for row, column in np.ndindex(*cells.shape[1:])]
    return 100 * np.concatenate((prefix, cells.reshape(len(cells), -1)), axis=1), names


def _by_token(measurements: Sequence[Measurement]) -> Figure:
    plot = panels([_title(each) for each in measurements], "", "layer", height=300, legend=False)
    found = [by_token(each) for each in measurements]
    cells = [np.asarray(each.values["tokens"], dtype=float) for each in measurements]
    limit = 100 * max(float(np.nanmax(np.abs(value))) for value in cells) or 1.0
    for panel, (value, names) in enumerate(found):
        columns, rows = list(range(len(names))), list(range(1, len(value) + 1))
        look: dict[str, Any] = {"zmin": -limit, "zmax": limit, "zmid": 0, "colorbar": _BAR}
        look["text"], look["hovertemplate"] = [names] * len(rows), "layer %{y}, %{text}: %{z:.2f} points"
        look["name"] = plain(measurements[panel].subject)
        heat_map(plot, rounded(value, 4), columns, rows, diverging=True, **look)
        axes = on_panel(panel)
        plot.data[-1].update(**axes, showscale=panel == 0)
        height, width = cells[panel].shape[1:]
        first = len(names) - height * width
        ticks: dict[str, Any] = {
            "tickvals": [*range(first), *(first + width * (row + 0.5) - 0.5 for row in range(height))]
        }
        ticks["ticktext"] = ["c", *[""] * first][:first] + [str(row + 1) for row in range(height)]
        plot.layout[axes["xaxis"].replace("x", "xaxis")].update(ticks, tickangle=0)
    plot.update_xaxes(title_text="c: class token; rows of cells")
    text = (
        "Restored by clean activations of one token or cell, by layer; the colours of the class token end at the scale"
    )
    return Figure(text, "", plot)


def _by_head(measurements: Sequence[Measurement]) -> Figure:
    plot = panels([_title(each) for each in measurements], "head", "layer", height=300, legend=False)
    values = [100 * np.asarray(each.values["heads"], dtype=float) for each in measurements]
    limit = max(float(np.nanmax(np.abs(value))) for value in values) or 1.0
    for panel, value in enumerate(values):
        layers, heads = value.shape
        look: dict[str, Any] = {"zmin": -limit, "zmax": limit, "zmid": 0}
        look["colorbar"] = _BAR
        look["hovertemplate"] = "layer %{y}, head %{x}: %{z:.2f} points"
        look["name"] = plain(measurements[panel].subject)
        columns, rows = list(range(1, heads + 1)), list(range(1, layers + 1))
        heat_map(plot, rounded(value, 4), columns, rows, diverging=True, **look)
        plot.data[-1].update(**on_panel(panel), showscale=panel == 0)
    plot.update_xaxes(dtick=max(1, values[0].shape[1] // 8))
    best = [np.unravel_index(int(np.nanargmax(value)), value.shape) for value in values]
    parts = [
        f"head {head + 1} of layer {layer + 1} in {_title(measurement)} ({value[layer, head]:.1f} points)"
        for measurement, value, (layer, head) in zip(measurements, values, best, strict=True)
    ]
    return Figure(f"The single head that restores most: {'; '.join(parts)}", "", plot)


def _on_grid(measurement: Measurement) -> Figure:
    value = 100 * np.asarray(measurement.values["tokens"], dtype=float)
    chosen = sorted({int(index) for index in np.linspace(0, len(value) - 1, min(_PANELS, len(value))).round()})
    plot = panels([f"layer {index + 1}" for index in chosen], "", "", height=220, legend=False)
    limit = float(np.nanmax(np.abs(value[chosen]))) or 1.0
    for panel, index in enumerate(chosen):
        cells = value[index][::-1]  # the first row of the image at the top
        look: dict[str, Any] = {"zmin": -limit, "zmax": limit, "zmid": 0, "hovertemplate": "%{z:.2f} points"}
        look["colorbar"] = _BAR
        look["name"] = f"layer {index + 1}"
        heat_map(plot, rounded(cells, 4), range(cells.shape[1]), range(len(cells)), diverging=True, **look)
        axes = on_panel(panel)
        plot.data[-1].update(**axes, showscale=panel == 0)
        across, down = axes["xaxis"].replace("x", "xaxis"), axes["yaxis"].replace("y", "yaxis")
        plot.layout[across].update(showticklabels=False, constrain="domain")
        plot.layout[down].update(showticklabels=False, scaleanchor=axes["xaxis"], constrain="domain")
    share = 100 * np.nansum(np.clip(value, 0, None).max((1, 2))) / max(1e-9, np.nansum(np.clip(value, 0, None)))
    text = f"Cells of tokens in {_title(measurement)}: the best cell has {share:.0f} % of the restored probability"
    return Figure(text, "", plot)


def _title(measurement: Measurement) -> str:
    corruption = str(measurement.settings.get("corruption") or "")
    return f"{measurement.subject}, {corruption.replace('_', ' ')}" if corruption else measurement.subject
