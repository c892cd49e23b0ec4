"""Random erasing: replace a rectangle of some images by noise.

Shape legend: n images, S slots for erased images, C channels, h w pixels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vitlab.data.random_assignment import assign_slots, put, take
from vitlab.data.rectangles import cover, draw_rectangles

__all__ = ["Erasing", "draw_erasing", "erase"]


class Erasing(NamedTuple):
    """The rows of the images, (S,); the erased pixels, (S, 1, h, w) bool; and the noise for them, (S, C, h, w)."""

    rows: Tensor
    covered: Tensor
    noise: Tensor


def draw_erasing(count: int, shape: tuple[int, int, int], probability: float, generator: torch.Generator) -> Erasing:
    """Draw rectangles of 2 % to 1/3 of the area, ratio 0.3 to 1/0.3, for a share `probability` of the images.

    Zhong et al., Random Erasing, in timm's `pixel` mode with timm's ranges: each pixel becomes standard normal noise.
    Images are assigned to slots (see `random_assignment`), so that noise is drawn for that share only.

    Args:
        count: n.
        shape: C, h, w.
        probability: p.
        generator: its device is the device of the result.
    """
    channels, height, width = shape
    rows, active = assign_slots(count, probability, generator)
    largest = (height - 1, width - 1)  # timm: strictly smaller than the image
    boxes, fits = draw_rectangles(len(rows), (height, width), (0.02, 1 / 3), 0.3, largest, generator)
    covered = cover(boxes, (height, width)) & (active & fits)[:, None, None, None]
    noise = torch.randn(len(rows), channels, height, width, generator=generator, device=generator.device)
    return Erasing(rows, covered, noise)


def erase(images: Tensor, erasing: Erasing) -> Tensor:
    """Replace the erased pixels by the noise, (n, C, h, w) normalised in and out.

    >>> where, noise = torch.tensor([[[[True, False]]]]), torch.tensor([[[[9.0, 9.0]]]])
    >>> erase(torch.zeros(2, 1, 1, 2), Erasing(torch.tensor([1]), where, noise)).flatten()
    tensor([0., 0., 9., 0.])
    """
    erased = torch.where(erasing.covered, erasing.noise.to(images.dtype), take(images, erasing.rows))
    return put(images, erasing.rows, erased)
