"""Figures as plotly data: one look for all, and the strokes that the drawings of `figures/` are made of.

A drawing takes the Measurements of one kind, one for each model, the baseline first, and returns `Figure`s. plotly is
imported when something is drawn, so that measuring needs none.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement

#: Okabe and Ito's colours, which the colour-blind can tell apart, with a dash and a marker each for print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MARKERS = ("circle", "square", "diamond", "cross", "triangle-up", "x")
GREY = "#888888"

#: Maps of one sign and of two, both readable without colour vision.
SEQUENTIAL, DIVERGING = "Viridis", "RdBu_r"


@dataclass(frozen=True)
class Figure:
    """One figure of a report.

    Args:
        finding: its title: a sentence that says what is to be seen, with the number.
        paper: the figure or table of the papers that it stands for, such as `CB Fig. 4`; empty where there is none.
        plot: a plotly figure; the page adds title, colours of light and dark, and the buttons.
    """

    finding: str
    paper: str
    plot: Any


def draw(kind: str, measurements: Sequence[Measurement]) -> list[Figure]:
    """The figures of one kind: its own drawing in `figures/`, else the default one."""
    name = f"vitlab.reporting.figures.{kind}"
    if kind.isidentifier() and importlib.util.find_spec(name) is not None:
        figures: list[Figure] = importlib.import_module(name).draw(measurements)
        return figures
    from vitlab.reporting.default_drawing import draw_by_axes

    return draw_by_axes(measurements)


def empty_plot(x: str, y: str, *, height: int = 420) -> Any:
    """A plotly figure with the look that all share.

    Args:
        x, y: what stands along the axes, with the unit.
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


def side_by_side(titles: Sequence[str], x: str, y: str, *, height: int = 420) -> Any:
    """A row of panels with the same look, one for each title: heat maps of several models."""
    from plotly.subplots import make_subplots

    look = empty_plot(x, y, height=height).layout
    plot = make_subplots(cols=len(titles), subplot_titles=[plain(title) for title in titles], horizontal_spacing=0.08)
    for key in ("template", "paper_bgcolor", "plot_bgcolor", "font", "margin", "legend", "height"):
        plot.layout[key] = look[key]
    plot.update_layout(colorway=COLOURS, margin_t=64)
    plot.update_xaxes(title_text=x, gridcolor="rgba(128,128,128,0.2)", zeroline=False, automargin=True)
    plot.update_yaxes(gridcolor="rgba(128,128,128,0.2)", zeroline=False, automargin=True)
    plot.update_yaxes(title_text=y, col=1)
    return plot


def line(plot: Any, x: Sequence[Any], y: Any, name: str, index: int, *, error: Any = None, **style: Any) -> None:
    """A line with markers for the model of that index, with 95 % bars where standard errors are given."""
    import plotly.graph_objects as go

    stroke = {"color": colour(index), "dash": dash(index), **style.pop("line", {})}
    look = {"mode": "lines+markers", "marker": {"symbol": marker(index), "size": 7}, **style}
    look.setdefault("error_y", _whiskers(error, thickness=1))
    plot.add_trace(go.Scatter(x=list(x), y=_numbers(y), name=plain(name), line=stroke, **look))


def band(plot: Any, x: Sequence[Any], low: Any, high: Any, index: int, *, name: str = "", **where: Any) -> None:
    """The region between two curves, in the colour of the model of that index; saved as data where it has a name."""
    import plotly.graph_objects as go

    edge = [*_numbers(high), *_numbers(low)[::-1]]
    look = {"mode": "lines", "fill": "toself", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    shade = _transparent(colour(index), 0.14)
    called = plain(name) or None
    plot.add_trace(go.Scatter(x=[*x, *list(x)[::-1]], y=edge, name=called, fillcolor=shade, **look), **where)


def bars(plot: Any, x: Sequence[Any], y: Any, name: str, index: int, *, error: Any = None, **style: Any) -> None:
    """Bars for the model of that index, with 95 % bars where standard errors are given."""
    import plotly.graph_objects as go

    look = {"marker_color": colour(index), "error_y": _whiskers(error), **style}
    plot.add_trace(go.Bar(x=list(x), y=_numbers(y), name=plain(name), **look))


def heat_map(
    plot: Any, z: Any, x: Sequence[Any], y: Sequence[Any], *, panel: int = 0, diverging: bool = False, **style: Any
) -> None:
    """A heat map in one panel; a diverging one has its middle at zero. The first row of `z` is drawn at the bottom."""
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
    """A grey dotted line that the models are held against: a bound, a diagonal, a published number."""
    import plotly.graph_objects as go

    stroke = {"dash": "dot", "color": GREY}
    plot.add_trace(go.Scatter(x=list(x), y=_numbers(y), name=plain(name), mode="lines", line=stroke), **where)


def colour(index: int) -> str:
    """The colour of the model of that index."""
    return COLOURS[index % len(COLOURS)]


def dash(index: int) -> str:
    """The dash of the model of that index; shifted each time the colours begin again.

    >>> dash(0), colour(6) == colour(0), dash(6)
    ('solid', True, 'dash')
    """
    return DASHES[(index + index // len(COLOURS)) % len(DASHES)]


def marker(index: int) -> str:
    """The marker of the model of that index, shifted as its dash."""
    return MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]


def plain(text: str) -> str:
    """A name as plotly shows it, which would read some tags as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def by_layer(measurement: Measurement, name: str) -> np.ndarray:
    """A value over its first axis, averaged over the others; NaN where there is nothing."""
    array = np.asarray(measurement.values[name], dtype=float)
    flat = array.reshape(len(array), -1)
    counts = np.isfinite(flat).sum(1)
    mean: np.ndarray = np.where(np.isfinite(flat), flat, 0).sum(1) / np.where(counts, counts, np.nan)
    return mean


def labels(measurement: Measurement, name: str, axis: int = 0) -> list[Any]:
    """What stands along an axis of a value: layers and heads are numbered from 1, as in the papers."""
    called = measurement.dims[name][axis]
    count = np.shape(measurement.values[name])[axis]
    if called in ("layer", "head", "other_layer"):
        return list(range(1, count + 1))
    found = measurement.axes.get(called, range(count))
    return [plain(label) if isinstance(label, str) else label for label in found]


def compared(values: Sequence[float], what: str, unit: str = "", *, digits: int = 3, names: Sequence[str] = ()) -> str:
    """A finding in one sentence: the first model's number, and how far the others lie from it.

    >>> compared([3.7, 3.85], "Entropy in the deep half", "nats", names=["plain", "CB"])
    'Entropy in the deep half: 3.7 nats for plain; CB +0.15'
    """
    base = f"{what}: {values[0]:.{digits}g}{f' {unit}' if unit else ''}"
    if len(values) == 1:
        return base
    pairs = zip(names[1:], values[1:], strict=True)
    others = ", ".join(f"{name} {value - values[0]:+.{digits}g}" for name, value in pairs)
    return f"{base} for {names[0]}; {others}"


def _numbers(values: Any) -> list[float | None]:
    """Numbers as JSON knows them: what is not finite is a gap."""
    return [float(value) if np.isfinite(value) else None for value in np.asarray(values, dtype=float).ravel()]


def _whiskers(error: Any, **look: Any) -> dict[str, Any] | None:
    """Bars of 95 % for standard errors; none where nothing is known, which plotly would draw as an error of zero."""
    half = 1.96 * np.asarray(np.nan if error is None else error, dtype=float)
    return {"type": "data", "array": half, **look} if np.isfinite(half).any() else None


def _transparent(hex_colour: str, share: float) -> str:
    red, green, blue = (int(hex_colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"
