"""Between the way tokens lie in a model and the way parts and instruments see them: (B, N, D) in full-map order.

Shape legend: B batch, N tokens, D channels, h w grid, T windows.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from vitlab.core.anatomy import TokenLayout
from vitlab.core.errors import VitlabError


def to_tokens(x: Tensor, layout: TokenLayout, inverse: Tensor | None = None) -> Tensor:
    """A tensor as it lies at a seam, as (B, N, D): prefix tokens first, then the grid row by row.

    Shuffled tokens, whose order is not known, stay as they lie.

    Args:
        x: a tensor in `layout`.
        layout: how its tokens lie.
        inverse: `orders(layout)[1]` on the right device, where the caller keeps it.

    >>> layout = TokenLayout((2, 4), windows=2, permutation=(0, 1, 4, 5, 2, 3, 6, 7))
    >>> to_tokens(torch.arange(8.0).reshape(2, 4, 1), layout)[0, :, 0]
    tensor([0., 1., 4., 5., 2., 3., 6., 7.])
    """
    if layout.order == "BCHW":
        x = x.flatten(2).transpose(1, 2)
    elif layout.order in ("BHWD", "BTND"):
        x = x.flatten(1, 2)
    elif layout.order == "BDN":
        x = x.transpose(1, 2)
    elif layout.windows > 1:
        x = x.reshape(-1, layout.windows * x.shape[1], x.shape[2])
    if layout.permutation is not None:
        layout.check(x.shape[1], "this place")
    if layout.permutation is not None and not layout.shuffled:
        x = x[:, orders(layout, x.device)[1] if inverse is None else inverse]
    return x


def from_tokens(tokens: Tensor, layout: TokenLayout, like: Tensor, order: Tensor | None = None) -> Tensor:
    """The way back: (B, N, D) laid as `like`, the tensor that `to_tokens` was given."""
    if layout.permutation is not None and not layout.shuffled:
        tokens = tokens[:, orders(layout, tokens.device)[0] if order is None else order]
    if layout.order == "BCHW":
        return tokens.transpose(1, 2).reshape(like.shape)
    if layout.order == "BDN":
        return tokens.transpose(1, 2)
    return tokens.reshape(like.shape)


def orders(layout: TokenLayout, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Index tensors of a permuted layout: full map -> as it lies, and as it lies -> full map."""
    if layout.permutation is None:
        raise VitlabError(f"{layout} has no permutation to follow")
    if not layout.permutation:
        raise VitlabError(f"windows that pad the {layout.grid[0]}x{layout.grid[1]} map leave no order to follow")
    order, inverse = _orders(layout.permutation, layout.prefix)
    return torch.tensor(order, device=device), torch.tensor(inverse, device=device)


@lru_cache(maxsize=64)
def _orders(permutation: tuple[int, ...], prefix: int) -> tuple[list[int], list[int]]:
    order = [*range(prefix), *(prefix + index for index in permutation)]
    inverse = [0] * len(order)
    for position, index in enumerate(order):
        inverse[index] = position
    return order, inverse
