"""Where the tokens of an attention map stand in the image, windows, shifts and reduced key maps included.

Shape legend: T windows, N query tokens and M key tokens of one window (prefix tokens included, in front), h w grid.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vitlab.core.anatomy import TokenLayout


def positions(layout: TokenLayout) -> Tensor | None:
    """Centres of the grid's cells in coordinates that run from 0 to 1 along each side, window after window.

    Token (row, column) of an h × w grid stands at ((row + ½) / h, (column + ½) / w), so that grids of different sizes
    over the same image share their coordinates: a key of a reduced map stands in the middle of the cells that it
    summarises. A shifted window that wraps around the border keeps the true positions of its tokens.

    Args:
        layout: how the tokens lie.

    Returns:
        (T, n, 2) for the tokens of the grid, prefix tokens left out; None where windows are padded, their order
        unknown.

    >>> positions(TokenLayout((1, 2)))
    tensor([[[0.5000, 0.2500],
             [0.5000, 0.7500]]])
    """
    if layout.permutation == () or (layout.windows > 1 and (layout.permutation is None or layout.prefix)):
        return None
    h, w = layout.grid
    with torch.device("cpu"):  # whatever the default is
        index = torch.arange(h * w) if layout.permutation is None else torch.tensor(layout.permutation)
    centres = torch.stack(((index // w + 0.5) / h, (index % w + 0.5) / w), -1)
    return centres.reshape(layout.windows, -1, 2)


def distances(queries: TokenLayout, keys: TokenLayout) -> Tensor | None:
    """|p_i − p_j|_1 between every query and every key of the same window; 0 for prefix tokens, which stand nowhere.

    Returns:
        (T, N, M), or None where a position is not known.

    >>> distances(TokenLayout((1, 2)), TokenLayout((1, 2), prefix=1))
    tensor([[[0.0000, 0.0000, 0.5000],
             [0.0000, 0.5000, 0.0000]]])
    """
    places = _places(queries, keys)
    return None if places is None else _with_prefix(np.abs(places[0] - places[1]).sum(-1), queries, keys, 0.0)


def cells_apart(queries: TokenLayout, keys: TokenLayout) -> Tensor | None:
    """Steps between a query and a key, along rows or columns, whichever is more: 1 or less in its 3×3 neighbourhood.

    Counted in cells of the coarser grid where the two differ: a query is "itself" for the reduced key that covers it.

    Returns:
        (T, N, M), infinite for prefix tokens; None where a position is not known.

    >>> cells_apart(TokenLayout((1, 4)), TokenLayout((1, 2)))
    tensor([[[0., 1.],
             [0., 1.],
             [1., 0.],
             [1., 0.]]])
    """
    places = _places(queries, keys)
    if places is None:
        return None
    coarser = np.array([min(sides) for sides in zip(queries.grid, keys.grid, strict=True)], dtype=np.float32)
    rows, columns = (np.floor(place * coarser) for place in places)
    return _with_prefix(np.abs(rows - columns).max(-1), queries, keys, float("inf"))


def _places(queries: TokenLayout, keys: TokenLayout) -> tuple[np.ndarray, np.ndarray] | None:
    """Positions that broadcast against each other: (T, n, 1, 2) and (T, 1, m, 2)."""
    rows, columns = positions(queries), positions(keys)
    if rows is None or columns is None or queries.windows != keys.windows:
        return None
    return rows.numpy()[:, :, None], columns.numpy()[:, None]


def _with_prefix(pairs: np.ndarray, queries: TokenLayout, keys: TokenLayout, value: float) -> Tensor:
    front = ((0, 0), (queries.prefix, 0), (keys.prefix, 0))
    return torch.from_numpy(np.pad(pairs, front, constant_values=value))
