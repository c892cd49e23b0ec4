"""Convert between a model's token layouts and (B, N, D) in full-map order, which parts and instruments use.

Shape legend: B batch, N tokens, D channels, h w grid, T windows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from vitlab.core.anatomy import TokenLayout
from vitlab.core.errors import VitlabError


def to_tokens(x: Tensor, layout: TokenLayout, inverse: Tensor | None = None) -> Tensor:
    """Convert a tensor at a seam to (B, N, D): prefix tokens first, then the grid in row-major order.

    Shuffled tokens, whose order is not known, keep their order.

    Args:
        x: a tensor in `layout`.
        layout: the layout of its tokens.
        inverse: `orders(layout)[1]` on the device of `x`, if the caller caches it.

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
    if layout.permutation is not None and not layout.varying:
        layout.check(x.shape[1], "this place")
    if layout.permutation is not None and not layout.shuffled:
        x = x[:, orders(layout, x.device)[1] if inverse is None else inverse]
    return x


def from_tokens(tokens: Tensor, layout: TokenLayout, like: Tensor, order: Tensor | None = None) -> Tensor:
    """The inverse of `to_tokens`: (B, N, D) in the shape and order of `like`, the input of `to_tokens`."""
    if layout.permutation is not None and not layout.shuffled:
        tokens = tokens[:, orders(layout, tokens.device)[0] if order is None else order]
    if layout.order == "BCHW":
        return tokens.transpose(1, 2).reshape(like.shape)
    if layout.order == "BDN":
        return tokens.transpose(1, 2)
    return tokens.reshape(like.shape)


def first_of(values: Any) -> Any:
    """The tensor at a seam: the first of the inputs or outputs of a module, or its only output."""
    return values[0] if isinstance(values, (tuple, list)) else values


def with_first(values: Any, x: Tensor) -> Any:
    """The inputs or outputs of a module with another first tensor.

    >>> with_first((1, 2), 3), with_first([1, 2], 3), with_first(1, 3)
    ((3, 2), [3, 2], 3)
    """
    if isinstance(values, list):
        return [x, *values[1:]]
    return (x, *values[1:]) if isinstance(values, tuple) else x


def orders(layout: TokenLayout, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Index tensors of a permuted layout: full map -> layout order, and layout order -> full map."""
    if layout.permutation is None:
        raise VitlabError(f"{layout} has no permutation; expected a permuted layout")
    if not layout.permutation:
        raise VitlabError(
            f"the token order of the {layout.grid[0]}x{layout.grid[1]} map is not known: windows pad the map"
        )
    order, inverse = _orders(layout.permutation, layout.prefix, layout.suffix)
    return torch.tensor(order, device=device), torch.tensor(inverse, device=device)


@lru_cache(maxsize=64)
def _orders(permutation: tuple[int, ...], prefix: int, suffix: int) -> tuple[list[int], list[int]]:
    before = prefix - suffix
    order = [*range(before), *(prefix + index for index in permutation), *range(before, prefix)]
    inverse = [0] * len(order)
    for position, index in enumerate(order):
        inverse[index] = position
    return order, inverse
