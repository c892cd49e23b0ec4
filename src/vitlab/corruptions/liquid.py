"""The relief of drops of water on a lens: light along their rims, by edges, distances and an emboss.

The chain of OpenCV calls in the released code (Canny, distance transform, histogram equalisation, emboss), batched.
Values are 8-bit integers held in float32, because each of those calls rounds to them.

Shape legend: B images, h w pixels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.corruptions.filters import extend

_FARTHEST = 20  # distances to a rim are cut there
_WEAK, _STRONG = 50, 150  # Canny's thresholds of |gx| + |gy|
_TANGENT = 0.41421356  # of 22.5 degrees, where a gradient starts to count as diagonal


def relief(layer: Tensor) -> Tensor:
    """The light on drops: their thickness times an embossed map of the distance to the nearest rim.

    Distances are Euclidean, where OpenCV's chamfer mask is within 2 % of that; edges are linked over two pixels.

    Args:
        layer: (B, 1, h, w) in [0, 1], 0 where there is no drop.

    Returns:
        (B, 1, h, w) in [0, 1], the largest value 1 in each image that has a drop.

    >>> relief(torch.zeros(1, 1, 4, 4)).sum().item()
    0.0
    """
    thickness = layer.clamp(0, 1).mul(255).floor_()
    far = _box(rim_distance(rims(thickness))).add_(1e-4).floor_()
    slope = _emboss(equalise(far)).clamp_(0, 255)
    light = thickness * _box(slope).round_()
    return light / light.amax((2, 3), keepdim=True).clamp(min=1)


def rims(thickness: Tensor) -> Tensor:
    """Canny's edges (B, 1, h, w) bool: ridges of the gradient that are strong, or weak and beside a strong one."""
    padded = extend(thickness, 1, 1, "nearest")
    rows = padded[..., :-2, :] + 2 * padded[..., 1:-1, :] + padded[..., 2:, :]
    columns = padded[..., :-2] + 2 * padded[..., 1:-1] + padded[..., 2:]
    gx, gy = rows[..., 2:] - rows[..., :-2], columns[..., 2:, :] - columns[..., :-2, :]
    size = gx.abs() + gy.abs()
    around = F.pad(size, (1, 1, 1, 1))
    left, right = around[..., 1:-1, :-2], around[..., 1:-1, 2:]
    up, down = around[..., :-2, 1:-1], around[..., 2:, 1:-1]
    falling = (size > around[..., :-2, :-2]) & (size > around[..., 2:, 2:])
    rising = (size > around[..., :-2, 2:]) & (size > around[..., 2:, :-2])
    ridge = torch.where(gx * gy < 0, rising, falling)
    ridge = torch.where(gy.abs() < _TANGENT * gx.abs(), (size > left) & (size >= right), ridge)
    ridge = torch.where(gy.abs() > (_TANGENT + 2) * gx.abs(), (size > up) & (size >= down), ridge)
    weak, edges = ridge & (size > _WEAK), ridge & (size > _STRONG)
    for _ in range(2):
        padded = F.pad(edges, (1, 1, 1, 1))
        rows = padded[..., :-2, :] | padded[..., 1:-1, :] | padded[..., 2:, :]
        edges = weak & (rows[..., :-2] | rows[..., 1:-1] | rows[..., 2:])
    return edges


def rim_distance(edges: Tensor) -> Tensor:
    """Euclidean distance (B, 1, h, w) to the nearest True, at most 20: along rows, then min over columns of d² + k².

    >>> edges = torch.zeros(1, 1, 5, 4, dtype=torch.bool)
    >>> edges[0, 0, 0, 0] = True
    >>> rim_distance(edges)[0, 0, 4, 3].item()
    5.0
    """
    distance = torch.where(edges, 0.0, float(_FARTHEST))
    for step in (1, 2, 4, 8, 5):  # every distance up to 20 is a sum of some of these
        if step < distance.shape[-1]:
            after = distance[..., step:].add(step)
            before = distance[..., :-step].add(step)
            distance[..., :-step] = torch.minimum(distance[..., :-step], after)
            distance[..., step:] = torch.minimum(distance[..., step:], before)
    squares = distance.square()
    nearest = squares.clone()
    for k in range(1, min(_FARTHEST, edges.shape[-2])):
        shifted = squares + k * k
        torch.minimum(nearest[..., :-k, :], shifted[..., k:, :], out=nearest[..., :-k, :])
        torch.minimum(nearest[..., k:, :], shifted[..., :-k, :], out=nearest[..., k:, :])
    return nearest.sqrt_()


def equalise(levels: Tensor) -> Tensor:
    """Histogram equalisation of integers 0 … 20 to 0 … 255, each image by itself.

    Level v becomes 255 (F(v) − F₀) / (n − F₀), with F the cumulative histogram and F₀ the count of the lowest level.

    >>> equalise(torch.tensor([0.0, 0.0, 1.0, 5.0]).view(1, 1, 2, 2)).flatten().tolist()
    [0.0, 0.0, 128.0, 255.0]
    """
    flat = levels.flatten(1).long()
    counts = torch.zeros(len(flat), _FARTHEST + 1, device=levels.device)
    up_to = counts.scatter_add_(1, flat, torch.ones_like(levels).flatten(1)).cumsum(1)
    lowest = up_to.gather(1, flat.amin(1, keepdim=True))
    rest = flat.shape[1] - lowest
    table = ((up_to - lowest).clamp_(min=0) * (255 / rest)).round_()
    table = torch.where(rest > 0, table, torch.arange(_FARTHEST + 1.0, device=levels.device))
    return table.gather(1, flat).view_as(levels)


def _box(images: Tensor) -> Tensor:
    """The mean over 3 × 3 pixels."""
    padded = extend(images, 1, 1, "mirror")
    rows = padded[..., :-2, :] + padded[..., 1:-1, :] + padded[..., 2:, :]
    return (rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]).div_(9)


def _emboss(images: Tensor) -> Tensor:
    """Light from the lower right: the kernel ((−2, −1, 0), (−1, 1, 1), (0, 1, 2))."""
    p = extend(images, 1, 1, "mirror")
    up, here, down = p[..., :-2, :], p[..., 1:-1, :], p[..., 2:, :]
    total = here[..., 1:-1] + here[..., 2:] - here[..., :-2] + down[..., 1:-1] - up[..., 1:-1]
    return total.add_(down[..., 2:], alpha=2).sub_(up[..., :-2], alpha=2)
