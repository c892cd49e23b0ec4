"""Images beside their label maps and predictions, as pictures in one plot with a legend of the classes."""

from __future__ import annotations

import base64
import colorsys
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.reporting.drawing import empty_plot, plain
from vitlab.reporting.panels import wrapped

_IGNORED = (0, 0, 0)
_GAP = 0.04  # between pictures, relative to their width
_WIDTH = 230  # of a picture, in pixels


def class_colour(index: int) -> tuple[int, int, int]:
    """The colour of a class: hues at the golden ratio, in three brightnesses.

    >>> len({class_colour(index) for index in range(150)})
    150
    """
    hue, value = index * 0.618034 % 1, (0.95, 0.7, 0.45)[index % 3]
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(hue, 0.75, value))
    return red, green, blue


def coloured(labels: np.ndarray, classes: int) -> np.ndarray:
    """Label map (h, w) -> colours (h, w, 3) uint8; labels of no class are black."""
    table = np.array([class_colour(index) for index in range(classes)] + [_IGNORED] * (256 - classes), dtype=np.uint8)
    return np.asarray(table[labels.astype(np.uint8)])


def picture_rows(rows: Sequence[Sequence[np.ndarray]], columns: Sequence[str], names: Sequence[str]) -> Any:
    """A plot of rows of pictures.

    Args:
        rows: pictures (h, w, 3) uint8, row by row.
        columns: titles of the columns.
        names: names of the classes, for the legend; classes with an empty name are not listed.
    """
    height, width = rows[0][0].shape[:2]
    ratio = height / width
    pixels = min(_WIDTH, 900 // len(columns))
    plot = empty_plot("", "", height=int(len(rows) * (ratio + _GAP) * pixels) + 150)
    step = ratio + _GAP
    for place, row in enumerate(rows):
        for column, picture in enumerate(row):
            where = {"x": column * (1 + _GAP), "y": -place * step, "sizex": 1, "sizey": ratio}
            plot.add_layout_image(source=_png(picture), xref="x", yref="y", sizing="stretch", layer="above", **where)
    for index, name in enumerate(names):
        if not name:
            continue
        red, green, blue = class_colour(index)
        marker = {"color": f"rgb({red},{green},{blue})", "size": 11, "symbol": "square"}
        plot.add_scatter(x=[None], y=[None], mode="markers", name=plain(name), marker=marker)
    centres = [column * (1 + _GAP) + 0.5 for column in range(len(columns))]
    look = {"showgrid": False, "zeroline": False, "ticks": "", "constrain": "domain"}
    plot.update_xaxes(
        tickvals=centres, ticktext=[wrapped(name, 24) for name in columns], range=[0, len(columns) * (1 + _GAP)], **look
    )
    plot.update_yaxes(visible=False, range=[-len(rows) * step, 0], scaleanchor="x", constrain="domain")
    plot.update_layout(showlegend=bool(names), hovermode=False)
    return plot


def _png(picture: np.ndarray) -> str:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture, dtype=np.uint8)).save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
