"""Many small heat maps as the tiles of one picture: a single pair of axes and one colour scale, so that it stays light.

Tiles may differ in size: each is stretched over its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.reporting.drawing import SEQUENTIAL, empty_plot, plain
from vitlab.reporting.panels import rounded, wrapped

_SIDE = 0.94  # of a tile, in places


def mosaic(rows: Sequence[str], columns: Sequence[str], x: str, scale: str, low: float, high: float) -> Any:
    """An empty mosaic.

    Args:
        rows, columns: what the tiles of a row and of a column share.
        x: what the columns are.
        scale: what the colours mean, with the unit.
        low, high: where the colours begin and end.
    """
    side = min(190.0, 720 / len(columns))  # pixels of a tile, on a page of usual width
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
    """A heat map at its place, its first row on top; `text` says what each cell is."""
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
