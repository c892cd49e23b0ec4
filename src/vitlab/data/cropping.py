"""Random crops and flips of a batch of small images.

Shape legend: n images, C channels, h w pixels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vitlab.data.rectangles import Rectangles, draw_rectangles
from vitlab.data.warping import zoom

__all__ = ["Crops", "crop_and_flip", "draw_crops", "draw_resized_crops", "resized_crop"]


class Crops(NamedTuple):
    """The position of each window in its image, in pixels (negative in the padding), and whether it is mirrored."""

    tops: Tensor
    lefts: Tensor
    mirrored: Tensor


def draw_crops(
    count: int, size: tuple[int, int], flip: float, generator: torch.Generator, padded: bool = True
) -> Crops:
    """Draw windows of the image's size in the image padded by an eighth of each side (4 pixels of 32).

    DeiT and HDVW use four pixels at 32 × 32; an eighth at other sizes is our choice.

    >>> crops = draw_crops(1000, (32, 32), 0.5, torch.Generator().manual_seed(0))
    >>> int(crops.tops.min()), int(crops.tops.max())
    (-4, 4)
    """
    margins = [side // 8 if padded else 0 for side in size]
    device = generator.device
    tops, lefts = (
        torch.randint(-margin, margin + 1, (count,), generator=generator, device=device) for margin in margins
    )
    return Crops(tops, lefts, torch.rand(count, generator=generator, device=device) < flip)


def crop_and_flip(images: Tensor, crops: Crops) -> Tensor:
    """Crop the windows, black outside the image, and mirror some: (n, C, h, w) in and out, any dtype.

    >>> picture = torch.tensor([[[[1, 2, 3]]]])
    >>> crop_and_flip(picture, Crops(torch.tensor([0]), torch.tensor([1]), torch.tensor([True]))).flatten()
    tensor([0, 3, 2])
    """
    height, width = images.shape[2:]
    y = torch.arange(height, device=images.device) + crops.tops[:, None]
    x = torch.arange(width, device=images.device)
    x = torch.where(crops.mirrored[:, None], width - 1 - x, x) + crops.lefts[:, None]
    inside = ((y >= 0) & (y < height))[:, :, None] & ((x >= 0) & (x < width))[:, None, :]
    source = y.clamp(0, height - 1)[:, :, None] * width + x.clamp(0, width - 1)[:, None, :]
    flat = images.flatten(2)
    cropped = flat.gather(2, source.flatten(1)[:, None].expand_as(flat)).view_as(images)
    return cropped * inside[:, None]


def draw_resized_crops(count: int, size: tuple[int, int], generator: torch.Generator) -> Rectangles:
    """Draw windows of 8 % to 100 % of the area, ratio 3/4 to 4/3 (RandomResizedCrop); the whole image if none fits."""
    boxes, fits = draw_rectangles(count, size, (0.08, 1.0), 3 / 4, size, generator)
    whole = Rectangles(*(torch.full_like(boxes.tops, side) for side in (0, 0, *size)))
    return Rectangles(*(torch.where(fits, box, full) for box, full in zip(boxes, whole, strict=True)))


def resized_crop(images: Tensor, boxes: Rectangles) -> Tensor:
    """Resize each window to the whole image, bilinearly, rounded: uint8 (n, C, h, w) in and out.

    >>> picture = torch.tensor([[[[10, 20, 30, 40]]]], dtype=torch.uint8)
    >>> resized_crop(picture, Rectangles(*(torch.tensor([float(side)]) for side in (0, 2, 1, 2)))).flatten().tolist()
    [30, 32, 38, 40]
    """
    return zoom(images.float(), boxes).round().to(images.dtype)
