"""Token pooling in plain torch: `shifted`, the reference, and `banded`, which is faster on small maps.

Shape legend: B batch, N tokens, D channels, K branches, S neighbours of all branches, h w grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_BLOCK = 56  # tokens of a block of rows: larger blocks multiply more zeros, smaller ones start more products


def offsets(branch: int, nested: bool) -> tuple[int, ...]:
    """Returns the row and column offsets that a branch averages over.

    >>> offsets(2, nested=False), offsets(2, nested=True)
    ((-2, 0, 2), (-2, -1, 0, 1, 2))
    """
    if nested:
        return tuple(range(-branch, branch + 1))
    return (-branch, 0, branch) if branch else (0,)


def neighbourhood_mean(x: Tensor, offsets: Sequence[int]) -> Tensor:
    """Returns the mean over neighbours at the given row and column offsets; zeros outside the map are included.

    A box is separable: shifted rows are added, then shifted columns. With channels last this is a quarter faster than a
    depthwise convolution, forward and backward on a CPU, and eight times faster than unfold.

    Args:
        x: maps, (B, h, w, D).
        offsets: symmetric about 0, for example (-2, 0, 2) for a 3×3 neighbourhood with dilation 2.

    Returns:
        (B, h, w, D): sums over len(offsets)² neighbours, always divided by that number.

    >>> neighbourhood_mean(torch.full((1, 2, 2, 1), 9.0), (-1, 0, 1)).flatten()
    tensor([4., 4., 4., 4.])
    """
    if len(offsets) == 1:
        return x
    _, h, w, _ = x.shape
    reach = max(offsets)
    padded = F.pad(x, (0, 0, reach, reach, reach, reach))
    rows = reduce(torch.add, [padded[:, reach + offset : reach + offset + h] for offset in offsets])
    both = reduce(torch.add, [rows[:, :, reach + offset : reach + offset + w] for offset in offsets])
    return both / len(offsets) ** 2


def shifted(x: Tensor, weights: Tensor, grid: tuple[int, int], *, prefix: int = 0, nested: bool = False) -> Tensor:
    """The reference: a weighted sum of the means over each branch's neighbours. Arguments as in `pool`."""
    map = x[:, prefix:].reshape(len(x), *grid, -1)
    weights = weights.reshape(len(weights), *grid, -1)
    pooled = weights[..., :1] * map
    for branch in range(1, weights.shape[-1]):
        pooled = pooled + weights[..., branch : branch + 1] * neighbourhood_mean(map, offsets(branch, nested))
    return torch.cat((x[:, :prefix], pooled.flatten(1, 2)), 1) if prefix else pooled.flatten(1, 2)


def shifted_backward(
    gradient: Tensor, x: Tensor, weights: Tensor, grid: tuple[int, int], *, prefix: int = 0, nested: bool = False
) -> tuple[Tensor, Tensor]:
    """The gradients of x and the weights of `shifted`, (B, N, D) and (B, h·w, K); the means are symmetric."""
    weights = weights.expand(len(x), -1, -1)
    maps, gradients = (y[:, prefix:].reshape(len(x), *grid, -1) for y in (x, gradient))
    sides = [offsets(branch, nested) for branch in range(weights.shape[-1])]
    shares = [(gradients * neighbourhood_mean(maps, side)).sum(-1).flatten(1) for side in sides]
    weighted = shifted(gradient, torch.zeros_like(weights), grid, prefix=prefix)  # the prefix
    for branch, side in enumerate(sides):
        product = gradients * weights[..., branch].reshape(len(x), *grid, 1)
        weighted = weighted + F.pad(neighbourhood_mean(product, side).flatten(1, 2), (0, 0, prefix, 0))
    return weighted, torch.stack(shares, -1)


def banded(x: Tensor, weights: Tensor, grid: tuple[int, int], *, prefix: int = 0, nested: bool = False) -> Tensor:
    """As `shifted`, by a matrix product for each block of rows. Arguments as in `pool`.

    The tokens that a block of rows depends on lie within the rows above and below it, so that its matrix has few zeros.
    """
    branches = weights.shape[-1]
    around, means = _neighbours(branches, nested)
    values = weights @ torch.tensor(means, dtype=weights.dtype, device=weights.device)  # (B, h·w, S)
    values = values.expand(len(x), -1, -1)
    if prefix:
        own = F.one_hot(torch.zeros((), dtype=torch.long, device=x.device), len(around)).to(values.dtype)
        values = torch.cat((own.expand(len(x), prefix, -1), values), 1)
    columns = _columns(grid, prefix, around, x.device)
    product: Tensor = _BandedProduct.apply(x, values, columns, _blocks(grid, prefix, branches - 1))
    return product


def dense(x: Tensor, weights: Tensor, grid: tuple[int, int], *, prefix: int = 0, nested: bool = False) -> Tensor:
    """As `shifted`, by one matrix per image from elementwise operations, for `torch.compile`. Arguments as in `pool`.

    r = max(|Δrow|, |Δcolumn|) of two tokens selects the coefficient: the share of branch r if branches are dilated, the
    sum of the shares of branches r and above if they are nested; the token itself is in all of them.
    """
    count, branches = x.shape[1], weights.shape[-1]
    wide = -(-count // 16) * 16  # rows of the matrix start at multiples of 16 bytes
    n, m = torch.arange(count, device=x.device)[:, None], torch.arange(wide, device=x.device)[None]
    down = ((n - prefix) // grid[1] - (m - prefix) // grid[1]).abs()
    right = ((n - prefix) % grid[1] - (m - prefix) % grid[1]).abs()
    ring = torch.maximum(down, right)
    near = (n >= prefix) & (m >= prefix)
    if not nested:
        near = near & ((down == 0) | (down == ring)) & ((right == 0) | (right == ring))
    shares = F.pad(weights, (0, 0, prefix, 0))[..., None, :]  # (B, N, 1, K)
    total = torch.zeros_like(shares[..., 0])
    matrix = torch.where((n == m) & (n < prefix), 1.0, torch.zeros_like(total))
    for branch in reversed(range(branches)):
        share = shares[..., branch] / len(offsets(branch, nested)) ** 2
        total = total + share
        matrix = torch.where(near & (ring == branch), total if nested or branch == 0 else share, matrix)
    return matrix[..., :count] @ x


class _BandedProduct(torch.autograd.Function):
    """The product of the band and the tokens, with an own backward: autograd's adds zeros outside each block."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, columns: Tensor, blocks: tuple[tuple[int, ...], ...]) -> Tensor:
        ctx.save_for_backward(x, values, columns)
        ctx.blocks = blocks
        return torch.cat(
            [
                _matrix(values[:, first:last], columns[first:last], low, high) @ x[:, low:high]
                for first, last, low, high in blocks
            ],
            1,
        )

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, values, columns = ctx.saved_tensors
        dx, dvalues = torch.zeros_like(x), []
        for first, last, low, high in ctx.blocks:
            own, indices = gradient[:, first:last], columns[first:last]
            dx[:, low:high].baddbmm_(_matrix(values[:, first:last], indices, low, high).mT, own)
            products = F.pad(own @ x[:, low:high].mT, (0, 1))  # one column more: neighbours outside the map
            dvalues.append(products.gather(2, _within(indices, low, high).expand(len(x), -1, -1)))
        return dx, torch.cat(dvalues, 1), None, None


def _matrix(values: Tensor, columns: Tensor, low: int, high: int) -> Tensor:
    """(B, n, S) values at the columns (n, S) -> (B, n, high − low) matrices, the columns from `low` to `high`."""
    wide = -(-(high - low + 1) // 8) * 8  # rows at multiples of 16 bytes, and one column for what is outside the map
    indices = _within(columns, low, high).expand(len(values), -1, -1)
    return values.new_zeros(*values.shape[:2], wide).scatter(2, indices, values)[..., : high - low]


def _within(columns: Tensor, low: int, high: int) -> Tensor:
    """Column indices relative to a block; those outside the map (−1) become the column after the last one."""
    return torch.where(columns < 0, high - low, columns - low)


def _columns(grid: tuple[int, int], prefix: int, around: tuple[tuple[int, int], ...], device: torch.device) -> Tensor:
    """The index of each neighbour of each token, (N, S); −1 outside the map."""
    h, w = grid
    tokens = torch.arange(h * w, device=device)[:, None]
    step = torch.tensor(around, device=device)
    rows, columns = tokens // w + step[:, 0], tokens % w + step[:, 1]
    inside = (rows >= 0) & (rows < h) & (columns >= 0) & (columns < w)
    grid_columns = torch.where(inside, prefix + rows * w + columns, -1)
    before = torch.arange(prefix, device=device)[:, None].expand(-1, len(around))
    first = torch.arange(len(around), device=device) == 0
    return torch.cat((torch.where(first, before, -1), grid_columns))


@lru_cache(maxsize=64)
def _neighbours(branches: int, nested: bool) -> tuple[tuple[tuple[int, int], ...], list[list[float]]]:
    """The offsets of all neighbours, the token itself first, and their shares in the mean of each branch, (K, S)."""
    sides = [offsets(branch, nested) for branch in range(branches)]
    around = tuple(dict.fromkeys((down, right) for side in sides for down in side for right in side))
    means = [[(step[0] in side and step[1] in side) / len(side) ** 2 for step in around] for side in sides]
    return around, means


@lru_cache(maxsize=64)
def _blocks(grid: tuple[int, int], prefix: int, reach: int) -> tuple[tuple[int, ...], ...]:
    """Blocks of rows of the map: first and last token, and first and last token that these depend on."""
    h, w = grid
    rows = max(1, round(_BLOCK / w))
    blocks = []
    for top in range(0, h, rows):
        bottom = min(top + rows, h)
        low, high = max(top - reach, 0), min(bottom + reach, h)
        first = 0 if top == 0 else prefix + top * w
        blocks.append((first, prefix + bottom * w, 0 if top == 0 else prefix + low * w, prefix + high * w))
    return tuple(blocks)
