"""Panels in rows and columns, all of one look: a panel for each model, whose axes need not agree."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.reporting.drawing import empty_plot, plain
from vitlab.reporting.findings import decimals

_BETWEEN = 78  # pixels between rows, for titles and ticks


def panels(titles: Sequence[str], x: str, y: str, *, columns: int = 3, height: int = 280, legend: bool = True) -> Any:
    """An empty grid, filled row by row; `on_panel` of `shares` names the axes of each.

    Args:
        titles: one for each panel.
        x, y: what stands along the axes, said below the last row and left of the first column.
        columns: at most so many beside each other.
        height: of a panel, in pixels.
        legend: whether to leave room for one above.
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
    look = empty_plot("", "", height=inner + above + 56).layout
    for key in ("template", "paper_bgcolor", "plot_bgcolor", "font", "margin", "colorway", "height"):
        plot.layout[key] = look[key]
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


def wrapped(text: str, width: int = 28) -> str:
    """A name in lines of that many letters, as plotly shows it.

    >>> wrapped("timm/deit_tiny | ContextBroadcast", 18)
    'timm/deit_tiny |<br>ContextBroadcast'
    """
    return "<br>".join(plain(piece) for piece in textwrap.wrap(text, width) or [""])


def short(text: str, most: int = 36) -> str:
    """A name whose middle is left out where it is long: models differ at the front or in their last part.

    >>> short("timm/deit_tiny_patch16_224 | ContextBroadcast", 21)
    'timm/deit_…tBroadcast'
    """
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def shrunk(matrix: np.ndarray, most: int = 64) -> np.ndarray:
    """A matrix of at most so many rows and columns: averages over blocks that are as alike in size as can be.

    >>> shrunk(np.array([[1.0, 3.0, 8.0, 8.0]]), 2).tolist()
    [[2.0, 8.0]]
    """
    for axis in (0, 1):
        edges = np.linspace(0, matrix.shape[axis], min(matrix.shape[axis], most) + 1).astype(int)
        sizes = np.expand_dims(np.diff(edges), 1 - axis)
        matrix = np.add.reduceat(matrix, edges[:-1], axis) / sizes
    return matrix


def rounded(values: np.ndarray, digits: int = 4) -> np.ndarray:
    """As many decimals as the largest needs: large arrays travel inside the page.

    >>> rounded(np.array([12.34567, 0.00123, np.nan])).tolist()
    [12.35, 0.0, nan]
    """
    finite = values[np.isfinite(values)]
    return np.asarray(np.round(values, decimals(finite.tolist(), digits)))
