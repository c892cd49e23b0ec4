"""Positions of the tokens of an attention map in the image, for windows, shifted windows and reduced key maps.

Shape legend: T windows, N query tokens and M key tokens of one window (prefix tokens first), h w grid.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vitlab.core.anatomy import TokenLayout
from vitlab.kernels.attention_statistics import city_block


def positions(layout: TokenLayout) -> Tensor | None:
    """Centres of the grid cells in coordinates from 0 to 1 along each side, ordered by window.

    Token (row, column) of an h × w grid is at ((row + ½) / h, (column + ½) / w), so that grids of different sizes over
    the same image have the same coordinates: a key of a reduced map is at the centre of the cells that it covers. In a
    shifted window that wraps around the border, the tokens keep their true positions.

    Args:
        layout: the layout of the tokens.

    Returns:
        (T, n, 2) for the tokens of the grid, without prefix tokens; None if windows are padded and the token order is
        unknown.

    >>> positions(TokenLayout((1, 2)))
    tensor([[[0.5000, 0.2500],
             [0.5000, 0.7500]]])
    """
    if layout.permutation == () or (layout.windows > 1 and (layout.permutation is None or layout.prefix)):
        return None
    h, w = layout.grid
    with torch.device("cpu"):  # independent of the default device
        index = torch.arange(h * w) if layout.permutation is None else torch.tensor(layout.permutation)
    centres = torch.stack(((index // w + 0.5) / h, (index % w + 0.5) / w), -1)
    return centres.reshape(layout.windows, -1, 2)


def place_tokens(queries: TokenLayout, keys: TokenLayout) -> tuple[Tensor, Tensor] | None:
    """The positions of all queries and keys of a map, NaN for prefix tokens.

    Returns:
        (T, N, 2) and (T, M, 2), or None if positions are unknown.

    >>> place_tokens(TokenLayout((1, 2)), TokenLayout((1, 1), prefix=1))[1]
    tensor([[[   nan,    nan],
             [0.5000, 0.5000]]])
    """
    rows, columns = positions(queries), positions(keys)
    if rows is None or columns is None or queries.windows != keys.windows:
        return None
    pad = torch.nn.functional.pad
    return pad(rows, (0, 0, queries.prefix, 0), value=torch.nan), pad(columns, (0, 0, keys.prefix, 0), value=torch.nan)


def distances(queries: TokenLayout, keys: TokenLayout) -> Tensor | None:
    """|p_i − p_j|_1 between every query and every key of the same window; 0 for prefix tokens, which have no position.

    Returns:
        (T, N, M), or None if positions are unknown.

    >>> distances(TokenLayout((1, 2)), TokenLayout((1, 2), prefix=1))
    tensor([[[0.0000, 0.0000, 0.5000],
             [0.0000, 0.5000, 0.0000]]])
    """
    places = place_tokens(queries, keys)
    return None if places is None else city_block(*places)


def cells_apart(queries: TokenLayout, keys: TokenLayout) -> Tensor | None:
    """Chebyshev distance in cells between every query and every key; at most 1 in the 3×3 neighbourhood.

    If the grids differ, the unit is a cell of the coarser grid: a query has distance 0 to its reduced key.

    Returns:
        (T, N, M), infinite for prefix tokens; None if positions are unknown.

    >>> cells_apart(TokenLayout((1, 4)), TokenLayout((1, 2)))
    tensor([[[0., 1.],
             [0., 1.],
             [1., 0.],
             [1., 0.]]])
    """
    places = _broadcast_positions(queries, keys)
    if places is None:
        return None
    coarser = np.array([min(sides) for sides in zip(queries.grid, keys.grid, strict=True)], dtype=np.float32)
    rows, columns = (np.floor(place * coarser) for place in places)
    return _with_prefix(np.abs(rows - columns).max(-1), queries, keys, float("inf"))


def _broadcast_positions(queries: TokenLayout, keys: TokenLayout) -> tuple[np.ndarray, np.ndarray] | None:
    """Query and key positions in shapes that broadcast: (T, n, 1, 2) and (T, 1, m, 2)."""
    rows, columns = positions(queries), positions(keys)
    if rows is None or columns is None or queries.windows != keys.windows:
        return None
    return rows.numpy()[:, :, None], columns.numpy()[:, None]


def _with_prefix(pairs: np.ndarray, queries: TokenLayout, keys: TokenLayout, value: float) -> Tensor:
    front = ((0, 0), (queries.prefix, 0), (keys.prefix, 0))
    return torch.from_numpy(np.pad(pairs, front, constant_values=value))
