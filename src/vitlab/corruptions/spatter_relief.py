"""The relief of water drops on a lens: light along their edges, by edge detection, distances and an emboss filter.

A batched version of the OpenCV calls in the released code (Canny, distance transform, histogram equalisation, emboss).
Values are 8-bit integers in float32, because each of those calls rounds to integers.

Shape legend: B images, h w pixels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.corruptions.filters import extend

_FARTHEST = 20  # distances to an edge are clamped to this
_WEAK, _STRONG = 50, 150  # Canny's thresholds of |gx| + |gy|
_TANGENT = 0.41421356  # of 22.5 degrees, the smallest angle of a diagonal gradient


def relief(layer: Tensor) -> Tensor:
    """Returns the light on drops: their thickness times an embossed map of the distance to the nearest edge.

    Distances are Euclidean; OpenCV's chamfer mask is within 2 % of that. Edges are linked over two pixels.

    Args:
        layer: (B, 1, h, w) in [0, 1], 0 outside drops.

    Returns:
        (B, 1, h, w) in [0, 1], with maximum 1 in each image that has a drop.

    >>> relief(torch.zeros(1, 1, 4, 4)).sum().item()
    0.0
    """
    thickness = layer.clamp(0, 1).mul(255).floor_()
    far = _box(rim_distance(rims(thickness))).add_(1e-4).floor_()
    slope = _emboss(equalise(far)).clamp_(0, 255)
    light = thickness * _box(slope).round_()
    return light / light.amax((2, 3), keepdim=True).clamp(min=1)


def rims(thickness: Tensor) -> Tensor:
    """Returns Canny's edges (B, 1, h, w), 1.0 or 0.0: ridges of the gradient, strong or next to a strong one.

    A ridge is larger than its two neighbours across it. Conditions are computed as numbers, not masks: on a CPU torch
    compares five times slower than it subtracts.
    """
    padded = extend(thickness, 1, 1, "nearest")
    rows = padded[..., :-2, :] + 2 * padded[..., 1:-1, :] + padded[..., 2:, :]
    columns = padded[..., :-2] + 2 * padded[..., 1:-1] + padded[..., 2:]
    gx, gy = rows[..., 2:] - rows[..., :-2], columns[..., 2:, :] - columns[..., :-2, :]
    across, along = gx.abs(), gy.abs()
    size = across + along
    p = F.pad(size, (1, 1, 1, 1))
    falling, rising = torch.maximum(p[..., :-2, :-2], p[..., 2:, 2:]), torch.maximum(p[..., :-2, 2:], p[..., 2:, :-2])
    # Ties are resolved in favour of the left and the upper pixel: for integers, subtract 1 from the other.
    level = torch.maximum(p[..., 1:-1, :-2], p[..., 1:-1, 2:] - 1)
    upright = torch.maximum(p[..., :-2, 1:-1], p[..., 2:, 1:-1] - 1)
    neighbour = torch.lerp(falling, rising, _positive(-gx * gy))
    neighbour = torch.lerp(neighbour, level, _positive(_TANGENT * across - along))
    neighbour = torch.lerp(neighbour, upright, _positive(along - (_TANGENT + 2) * across))
    weak, edges = (_positive(size - neighbour.clamp(min=threshold)) for threshold in (_WEAK, _STRONG))
    for _ in range(2):
        p = F.pad(edges, (1, 1, 1, 1))
        rows = torch.maximum(torch.maximum(p[..., :-2, :], p[..., 1:-1, :]), p[..., 2:, :])
        edges = torch.maximum(torch.maximum(rows[..., :-2], rows[..., 1:-1]), rows[..., 2:]).mul_(weak)
    return edges


def rim_distance(edges: Tensor) -> Tensor:
    """Returns the Euclidean distance (B, 1, h, w) to the nearest 1.0, at most 20: along rows, then min_k of d² + k².

    >>> edges = torch.zeros(1, 1, 5, 4)
    >>> edges[0, 0, 0, 0] = 1
    >>> rim_distance(edges)[0, 0, 4, 3].item()
    5.0
    """
    distance = edges.mul(-_FARTHEST).add_(_FARTHEST).to(torch.int16)
    for step in (1, 2, 4, 8, 5):  # every distance up to 20 is a sum of some of these
        if step < distance.shape[-1]:
            farther = distance + step
            _lower(distance[..., :-step], farther[..., step:])
            _lower(distance[..., step:], farther[..., :-step])
    squares = distance * distance  # a power of int16 is a hundred times slower
    nearest = squares.clone()
    for k in range(1, min(_FARTHEST, edges.shape[-2])):
        farther = squares + k * k
        _lower(nearest[..., :-k, :], farther[..., k:, :])
        _lower(nearest[..., k:, :], farther[..., :-k, :])
    return nearest.float().sqrt_()


def equalise(levels: Tensor) -> Tensor:
    """Histogram equalisation of integers 0 … 20 to 0 … 255, per image.

    Level v becomes 255 (F(v) − F₀) / (n − F₀), where F is the cumulative histogram and F₀ that of the lowest level.

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


def _positive(numbers: Tensor) -> Tensor:
    """Set positive numbers to 1.0 and others to 0.0, in place; for integers, or numbers larger than 2⁻²⁰."""
    return numbers.mul_(2**20).clamp_(0, 1)


def _lower(values: Tensor, others: Tensor) -> None:
    """Element-wise minimum, in place."""
    torch.minimum(values, others, out=values)


def _box(images: Tensor) -> Tensor:
    """Returns the mean over 3 × 3 pixels."""
    padded = extend(images, 1, 1, "mirror")
    rows = padded[..., :-2, :] + padded[..., 1:-1, :] + padded[..., 2:, :]
    return (rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]).div_(9)


def _emboss(images: Tensor) -> Tensor:
    """Emboss filter, light from the lower right: the kernel ((−2, −1, 0), (−1, 1, 1), (0, 1, 2))."""
    p = extend(images, 1, 1, "mirror")
    up, here, down = p[..., :-2, :], p[..., 1:-1, :], p[..., 2:, :]
    total = here[..., 1:-1] + here[..., 2:] - here[..., :-2] + down[..., 1:-1] - up[..., 1:-1]
    return total.add_(down[..., 2:], alpha=2).sub_(up[..., :-2], alpha=2)
