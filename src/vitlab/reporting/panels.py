"""Plots of several panels in the common style: grids, rows with one title per axis, and shared scales."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.reporting.drawing import COLOURS, empty_plot, plain
from vitlab.reporting.findings import decimals

_BETWEEN = 78  # pixels between rows, for titles and ticks


def panels(titles: Sequence[str], x: str, y: str, *, columns: int = 3, height: int = 280, legend: bool = True) -> Any:
    """An empty grid of panels, filled row by row; `on_panel` gives the axes of each.

    Args:
        titles: one per panel.
        x, y: titles of the axes, shown below the last row and left of the first column.
        columns: the maximum number of columns.
        height: of a panel, in pixels.
        legend: whether to reserve space for a legend above.
    """
    from plotly.subplots import make_subplots

    columns = min(columns, len(titles))
    rows = -(-len(titles) // columns)
    places: list[list[dict[str, Any] | None]] = [
        [{} if row * columns + column < len(titles) else None for column in range(columns)] for row in range(rows)
    ]
    inner = rows * height + (rows - 1) * _BETWEEN
    wide = max(20, 90 // columns)
    above = 92 if legend else 52
    plot = make_subplots(
        rows=rows,
        cols=columns,
        specs=places,
        subplot_titles=[wrapped(title, wide) for title in titles],
        vertical_spacing=_BETWEEN / inner if rows > 1 else 0.0,
        horizontal_spacing=0.24 / columns if columns > 1 else 0.0,
    )
    style = empty_plot("", "", height=inner + above + 56).layout
    for key in ("template", "paper_bgcolor", "plot_bgcolor", "font", "margin", "colorway", "height"):
        plot.layout[key] = style[key]
    above_all = {"orientation": "h", "y": 1 + 30 / inner, "yanchor": "bottom"}
    plot.update_layout(hovermode="closest", margin_t=above, margin_b=56, legend=above_all)
    plot.update_annotations(font_size=14)
    plot.update_xaxes(gridcolor="rgba(128,128,128,0.2)", zeroline=False, automargin=True)
    plot.update_yaxes(gridcolor="rgba(128,128,128,0.2)", zeroline=False, automargin=True)
    for index in range(len(titles)):
        row, column = divmod(index, columns)
        if index + columns >= len(titles):
            plot.update_xaxes(title_text=x, row=row + 1, col=column + 1)
        if not column:
            plot.update_yaxes(title_text=y, row=row + 1, col=1)
    return plot


def panels_with_own_axes(titles: Sequence[str], x: Sequence[str], y: Sequence[str], *, height: int = 240) -> Any:
    """A row of empty panels with their own axis titles."""
    plot = panels(titles, "", "", height=height)
    for index, (below, beside) in enumerate(zip(x, y, strict=True)):
        axes = on_panel(index)
        plot.layout[axes["xaxis"].replace("x", "xaxis")].title.text = below
        plot.layout[axes["yaxis"].replace("y", "yaxis")].title.text = beside
    above = {"orientation": "h", "x": 0, "y": 1 + 34 / height, "yanchor": "bottom"}  # clear of the panels' titles
    plot.update_layout(hovermode="x unified", legend=above, margin_t=112)
    plot.update_yaxes(hoverformat=".2f", title_standoff=8)
    plot.update_xaxes(title_standoff=8)
    return plot


def side_by_side(titles: Sequence[str], x: str, y: str) -> Any:
    """A row of empty panels with common axis titles, such as heat maps of several models."""
    from plotly.subplots import make_subplots

    style = empty_plot(x, y).layout
    plot = make_subplots(cols=len(titles), subplot_titles=[plain(title) for title in titles], horizontal_spacing=0.08)
    for key in ("template", "paper_bgcolor", "plot_bgcolor", "font", "margin", "legend", "height"):
        plot.layout[key] = style[key]
    plot.update_layout(colorway=COLOURS, margin_t=64)
    plot.update_xaxes(title_text=x, gridcolor="rgba(128,128,128,0.2)", zeroline=False, automargin=True)
    plot.update_yaxes(gridcolor="rgba(128,128,128,0.2)", zeroline=False, automargin=True)
    plot.update_yaxes(title_text=y, col=1)
    return plot


def on_panel(index: int) -> dict[str, str]:
    """The axes of a panel, as arguments of a trace."""
    number = "" if index == 0 else str(index + 1)
    return {"xaxis": f"x{number}", "yaxis": f"y{number}"}


def share_y_axis(plot: Any, group: Sequence[int]) -> None:
    """Give panels one y scale: all match the first."""
    for panel in group[1:]:
        plot.layout[on_panel(panel)["yaxis"].replace("y", "yaxis")].matches = on_panel(group[0])["yaxis"]


def wrapped(text: str, width: int = 28) -> str:
    """A name wrapped to lines of at most `width` letters, escaped for plotly.

    >>> wrapped("timm/deit_tiny | ContextBroadcast", 18)
    'timm/deit_tiny |<br>ContextBroadcast'
    """
    return "<br>".join(plain(piece) for piece in textwrap.wrap(text, width) or [""])


def short(text: str, most: int = 36) -> str:
    """A name without its middle if it is longer than `most`: names of models differ at the start or at the end.

    >>> short("timm/deit_tiny_patch16_224 | ContextBroadcast", 21)
    'timm/deit_…tBroadcast'
    """
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def shrunk(matrix: np.ndarray, most: int = 64) -> np.ndarray:
    """A matrix with at most `most` rows and columns: means over blocks of nearly equal size.

    >>> shrunk(np.array([[1.0, 3.0, 8.0, 8.0]]), 2).tolist()
    [[2.0, 8.0]]
    """
    for axis in (0, 1):
        edges = np.linspace(0, matrix.shape[axis], min(matrix.shape[axis], most) + 1).astype(int)
        sizes = np.expand_dims(np.diff(edges), 1 - axis)
        matrix = np.add.reduceat(matrix, edges[:-1], axis) / sizes
    return matrix


def rounded(values: np.ndarray, digits: int = 4) -> np.ndarray:
    """Values rounded to `digits` significant digits of the largest: large arrays are stored in the page.

    >>> rounded(np.array([12.34567, 0.00123, np.nan])).tolist()
    [12.35, 0.0, nan]
    """
    finite = values[np.isfinite(values)]
    return np.asarray(np.round(values, decimals(finite.tolist(), digits)))
