"""Many small heat maps as tiles of one plot with one pair of axes and one colour scale, which keeps the page small.

Tiles may have different numbers of cells: each is scaled to the size of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.reporting.drawing import SEQUENTIAL, empty_plot, plain
from vitlab.reporting.panels import rounded, wrapped

_SIDE = 0.94  # the side of a tile, relative to the distance between tiles


def mosaic(rows: Sequence[str], columns: Sequence[str], x: str, scale: str, low: float, high: float) -> Any:
    """An empty mosaic.

    Args:
        rows, columns: labels of the rows and columns of tiles.
        x: the title of the x axis.
        scale: the title of the colour scale, with the unit.
        low, high: the range of the colour scale.
    """
    side = min(190.0, 720 / len(columns))  # of a tile in pixels, for the usual width of a page
    plot = empty_plot(x, "", height=int(side * len(rows)) + 130)
    bar = {"title": {"text": scale, "side": "right"}, "thickness": 14}
    plot.update_layout(
        coloraxis={"colorscale": SEQUENTIAL, "cmin": low, "cmax": high, "colorbar": bar},
        hovermode="closest",
        margin_t=16,
    )
    centres = [place + _SIDE / 2 for place in range(max(len(rows), len(columns)))]
    look = {"showgrid": False, "zeroline": False, "ticks": "", "constrain": "domain"}
    plot.update_xaxes(tickvals=centres[: len(columns)], ticktext=[plain(name) for name in columns], **look)
    plot.update_yaxes(tickvals=centres[: len(rows)], ticktext=[wrapped(name, 20) for name in rows], **look)
    plot.update_xaxes(range=[-0.03, len(columns)])
    plot.update_yaxes(range=[len(rows), -0.03], scaleanchor="x")  # the first row on top
    return plot


def tile(plot: Any, z: np.ndarray, row: int, column: int, name: str, text: Any = None) -> None:
    """Add a heat map as a tile, its first row on top; `text` labels its cells."""
    import plotly.graph_objects as go

    height, width = np.shape(z)
    plot.add_trace(
        go.Heatmap(
            z=rounded(np.asarray(z, dtype=float)).tolist(),
            x0=column + _SIDE / width / 2,
            dx=_SIDE / width,
            y0=row + _SIDE / height / 2,
            dy=_SIDE / height,
            coloraxis="coloraxis",
            name=plain(name),
            text=text,
            hovertemplate=("%{text}: " if text is not None else "") + "%{z:.3g}",
        )
    )
