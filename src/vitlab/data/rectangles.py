"""Random rectangles of a given range of areas, one per image, for random erasing and resized crops.

Shape legend: n images, h w pixels, t tries.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Rectangles", "cover", "draw_rectangles"]

_TRIES = 10  # as in timm and torchvision


class Rectangles(NamedTuple):
    """One rectangle per image: (n,) float32 each, whole numbers of pixels."""

    tops: Tensor
    lefts: Tensor
    heights: Tensor
    widths: Tensor


def draw_rectangles(
    count: int,
    size: tuple[int, int],
    areas: tuple[float, float],
    aspect: float,
    largest: tuple[int, int],
    generator: torch.Generator,
) -> tuple[Rectangles, Tensor]:
    """Draw rectangles of uniform area, log-uniform aspect ratio and uniform position.

    Up to ten tries per image, as in timm and torchvision, but drawn at once: the first that fits is used.

    Args:
        count: n.
        size: h, w.
        areas: smallest and largest area, as shares of h w.
        aspect: the ratio runs from `aspect` to 1 / `aspect`.
        largest: largest height and width that fit.
        generator: its device is the device of the result.

    Returns:
        The rectangles, and (n,) bool: whether any try fits; otherwise the rectangle is undefined.

    >>> boxes, fits = draw_rectangles(1, (8, 8), (0.25, 0.25), 1.0, (8, 8), torch.Generator().manual_seed(0))
    >>> boxes.heights.item(), boxes.widths.item(), fits.item()
    (4.0, 4.0, True)
    """
    area, ratio = torch.rand(2, count, _TRIES, generator=generator, device=generator.device)
    down, right = torch.rand(2, count, generator=generator, device=generator.device)
    area = (areas[0] + (areas[1] - areas[0]) * area) * (size[0] * size[1])
    ratio = torch.exp((2 * ratio - 1) * math.log(aspect))
    heights, widths = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
    fits = (heights <= largest[0]) & (widths <= largest[1])
    first = fits.to(torch.uint8).argmax(1, keepdim=True)
    height, width = heights.gather(1, first)[:, 0], widths.gather(1, first)[:, 0]
    tops, lefts = _place(down, size[0] - height), _place(right, size[1] - width)
    return Rectangles(tops, lefts, height, width), fits.any(1)


def cover(boxes: Rectangles, size: tuple[int, int]) -> Tensor:
    """Returns which pixels the rectangles cover, (n, 1, h, w) bool.

    >>> box = Rectangles(*(torch.tensor([float(side)]) for side in (0, 1, 1, 2)))
    >>> cover(box, (2, 3)).int().tolist()
    [[[[0, 1, 1], [0, 0, 0]]]]
    """
    rows = _between(boxes.tops, boxes.heights, size[0])
    columns = _between(boxes.lefts, boxes.widths, size[1])
    return (rows[:, :, None] & columns[:, None, :])[:, None]


def _place(uniform: Tensor, room: Tensor) -> Tensor:
    """Returns an integer from 0 to `room`, inclusive."""
    return torch.minimum((uniform * (room + 1)).floor(), room)


def _between(starts: Tensor, lengths: Tensor, side: int) -> Tensor:
    positions = torch.arange(side, device=starts.device)
    return (positions >= starts[:, None]) & (positions < (starts + lengths)[:, None])
