"""Figures as plotly data: the common style, and the lines, bars and heat maps that the drawings in `figures/` use.

A drawing takes the measurements of one kind, one per model with the baseline first, and returns `Figure`s. plotly is
imported when a figure is drawn, so that measuring does not need it.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitlab.core import plugins
from vitlab.core.descriptions import origin
from vitlab.core.errors import ExtensionError, VitlabError, reason_of
from vitlab.core.extensions import resolve
from vitlab.core.measurement import Measurement
from vitlab.reporting.headline import Headline

#: Okabe and Ito's colours, distinguishable with colour blindness, each with a dash and a marker for print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
#: The same colours, lighter, for dark backgrounds.
DARK_COLOURS = ("#5AA9F5", "#FF8A4C", "#35C79A", "#E8A3CB", "#F2BC3F", "#9BE1FF")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MARKERS = ("circle", "square", "diamond", "cross", "triangle-up", "x")
GREY = "#888888"

#: Colour maps for values of one sign and of both signs, readable without colour vision.
SEQUENTIAL, DIVERGING = "Viridis", "RdBu_r"


@dataclass(frozen=True)
class Figure:
    """One figure of a report.

    Args:
        result: the result as a `Headline`, which `describe_number` returns, or as a sentence.
        paper: the corresponding figure or table of the papers, such as `CB Fig. 4`; empty if there is none.
        plot: a plotly figure; the page adds the title, the colours of the light and dark theme, and the buttons.
    """

    result: str | Headline
    paper: str
    plot: Any

    @property
    def headline(self) -> Headline:
        """The result as a claim, a sentence and a row of the table."""
        return self.result if isinstance(self.result, Headline) else Headline(self.result)

    @property
    def finding(self) -> str:
        """The result as a sentence with its numbers."""
        return self.headline.sentence


@dataclass(frozen=True)
class Fragment:
    """A part of a report that is HTML instead of a plot.

    Args:
        html: inserted into the page without escaping: all strings in it must be escaped already. Its scripts run only
            if they are files of `templates/`, unchanged.
        height: in a notebook cell, in pixels.
    """

    html: str
    height: int = 800


def draw(kind: str, measurements: Sequence[Measurement]) -> list[Figure | Fragment]:
    """The `Figure`s and `Fragment`s of one kind: by its module in `figures/`, else by the names of the axes."""
    name = f"vitlab.reporting.figures.{kind}"
    if kind.isidentifier() and importlib.util.find_spec(name) is not None:
        figures: list[Figure | Fragment] = importlib.import_module(name).draw(measurements)
        return figures
    added = plugins.figures()
    if kind in added:
        return _drawn_by_extension(kind, resolve(added[kind]), measurements)
    from vitlab.reporting.default_drawing import draw_by_axes

    return [*draw_by_axes(measurements)]


def _drawn_by_extension(kind: str, found: Any, measurements: Sequence[Measurement]) -> list[Figure | Fragment]:
    """The figures of an extension; an error of its code names it."""
    try:
        drawn = (found if callable(found) else found.draw)(measurements)
        if not isinstance(drawn, list | tuple) or not all(isinstance(each, Figure | Fragment) for each in drawn):
            raise VitlabError(f"it returned {type(drawn).__name__}; expected a list of Figures")
        for each in drawn:
            if isinstance(each, Figure) and not hasattr(each.plot, "to_plotly_json"):
                raise VitlabError(f"its plot is of type {type(each.plot).__name__}; expected a plotly figure")
        return list(drawn)
    except Exception as error:  # code of others
        raise ExtensionError(f"figure {kind!r} of {origin('figures', kind)} failed: {reason_of(error)}") from error


def empty_plot(x: str, y: str, *, height: int = 420) -> Any:
    """An empty plotly figure in the common style.

    Args:
        x, y: titles of the axes, with the unit.
        height: in pixels.
    """
    import plotly.graph_objects as go

    plot = go.Figure()
    plot.update_layout(
        xaxis_title=x,
        yaxis_title=y,
        colorway=COLOURS,
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 14},
        margin={"l": 64, "r": 24, "t": 40, "b": 48},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        hovermode="x unified",
        height=height,
    )
    plot.update_xaxes(gridcolor="rgba(128,128,128,0.2)", zeroline=False, automargin=True)
    plot.update_yaxes(gridcolor="rgba(128,128,128,0.2)", zeroline=False, automargin=True)
    return plot


def line(plot: Any, x: Sequence[Any], y: Any, name: str, index: int, *, error: Any = None, **style: Any) -> None:
    """Add a line with markers for the model of that index, with 95 % bars if standard errors are given."""
    import plotly.graph_objects as go

    stroke = {"color": colour(index), "dash": dash(index), **style.pop("line", {})}
    look = {"mode": "lines+markers", "marker": {"symbol": marker(index), "size": 7}, **style}
    look.setdefault("error_y", _error_bars(error, thickness=1))
    plot.add_trace(go.Scatter(x=list(x), y=_numbers(y), name=plain(name), line=stroke, **look))


def band(plot: Any, x: Sequence[Any], low: Any, high: Any, index: int, *, name: str = "", **where: Any) -> None:
    """Add the region between two curves in the colour of the model of that index; the CSV data includes named ones."""
    import plotly.graph_objects as go

    edge = [*_numbers(high), *_numbers(low)[::-1]]
    look = {"mode": "lines", "fill": "toself", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    shade = _transparent(colour(index), 0.14)
    label = plain(name) or None
    plot.add_trace(go.Scatter(x=[*x, *list(x)[::-1]], y=edge, name=label, fillcolor=shade, **look), **where)


def bars(plot: Any, x: Sequence[Any], y: Any, name: str, index: int, *, error: Any = None, **style: Any) -> None:
    """Add bars for the model of that index, with 95 % bars if standard errors are given."""
    import plotly.graph_objects as go

    look = {"marker_color": colour(index), "error_y": _error_bars(error), **style}
    plot.add_trace(go.Bar(x=list(x), y=_numbers(y), name=plain(name), **look))


def heat_map(
    plot: Any, z: Any, x: Sequence[Any], y: Sequence[Any], *, panel: int = 0, diverging: bool = False, **style: Any
) -> None:
    """Add a heat map to one panel; diverging colours are centred at zero. The first row of `z` is at the bottom."""
    import plotly.graph_objects as go

    look: dict[str, Any] = {"colorscale": DIVERGING if diverging else SEQUENTIAL, "showscale": panel == 0, **style}
    if diverging and "zmid" not in look:
        look["zmid"] = 0
    titles = plot.layout.annotations
    if panel < len(titles):
        look.setdefault("name", titles[panel].text)
    where = {} if plot._grid_ref is None else {"row": 1, "col": panel + 1}
    plot.add_trace(go.Heatmap(z=np.asarray(z, dtype=float).tolist(), x=list(x), y=list(y), **look), **where)


def reference(plot: Any, x: Sequence[Any], y: Any, name: str, **where: Any) -> None:
    """Add a grey dotted reference line: a bound, a diagonal, a published number."""
    import plotly.graph_objects as go

    stroke = {"dash": "dot", "color": GREY}
    plot.add_trace(go.Scatter(x=list(x), y=_numbers(y), name=plain(name), mode="lines", line=stroke), **where)


def start_at_zero(plot: Any) -> None:
    """Start the y axes at 0, also where a symmetric error bar of a small value extends below 0."""
    plot.update_yaxes(rangemode="tozero", minallowed=0, hoverformat=".2f")


def remove_unused_bar_notes(plot: Any) -> Any:
    """Remove the note `(bars: …)` from the titles of axes whose traces have no error bars; returns the plot."""
    for letter in "xy":
        for axis in plot.select_xaxes() if letter == "x" else plot.select_yaxes():
            own = axis.plotly_name.replace("axis", "")
            traces = [trace for trace in plot.data if (trace[f"{letter}axis"] or letter) == own]
            if axis.title.text and not any(_has_bars(trace[f"error_{letter}"]) for trace in traces):
                axis.title.text = re.sub(r"(?: |<br>)\(bars:[^)]*\)", "", axis.title.text)
    return plot


def colour(index: int) -> str:
    """The colour of the model of that index."""
    return COLOURS[index % len(COLOURS)]


def dash(index: int) -> str:
    """The dash of the model of that index; shifted each time the colours repeat.

    >>> dash(0), colour(6) == colour(0), dash(6)
    ('solid', True, 'dash')
    """
    return DASHES[(index + index // len(COLOURS)) % len(DASHES)]


def marker(index: int) -> str:
    """The marker of the model of that index; shifted in the same way as its dash."""
    return MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]


def plain(text: str) -> str:
    """A name escaped for plotly, which interprets some HTML tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def by_layer(measurement: Measurement, name: str) -> np.ndarray:
    """A value along its first axis, averaged over the finite numbers of the others; NaN where there are none."""
    array = np.asarray(measurement.values[name], dtype=float)
    flat = array.reshape(len(array), -1)
    counts = np.isfinite(flat).sum(1)
    mean: np.ndarray = np.where(np.isfinite(flat), flat, 0).sum(1) / np.where(counts, counts, np.nan)
    return mean


def labels(measurement: Measurement, name: str, axis: int = 0) -> list[Any]:
    """Labels along an axis of a value: layers and heads are numbered from 1, as in the papers."""
    dimension = measurement.dims[name][axis]
    count = np.shape(measurement.values[name])[axis]
    if dimension in ("layer", "head", "other_layer"):
        return list(range(1, count + 1))
    names = measurement.axes.get(dimension, range(count))
    return [plain(label) if isinstance(label, str) else label for label in names]


def _numbers(values: Any) -> list[float | None]:
    """Numbers for JSON: None if not finite, which is drawn as a gap."""
    return [float(value) if np.isfinite(value) else None for value in np.asarray(values, dtype=float).ravel()]


def _error_bars(error: Any, **style: Any) -> dict[str, Any] | None:
    """95 % bars for standard errors; None if no error is known, which plotly would draw as an error of zero."""
    half = 1.96 * np.asarray(np.nan if error is None else error, dtype=float)
    return {"type": "data", "array": half, **style} if np.isfinite(half).any() else None


def _has_bars(error: Any) -> bool:
    array = None if error is None else error.array
    return array is not None and bool(np.isfinite(np.asarray(array, dtype=float)).any())


def _transparent(hex_colour: str, share: float) -> str:
    red, green, blue = (int(hex_colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"
