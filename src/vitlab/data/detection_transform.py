"""Resize and flip an image together with its objects.

The shorter side of an image becomes `side` pixels long, unless the longer side would exceed `longest`; then the longer
side becomes `longest`.

Shape legend: K objects of an image, h w pixels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.data.detection import Annotated

__all__ = ["Prepared", "flipped", "resize_pixels", "resized", "resized_size"]


class Prepared(NamedTuple):
    """A training image (3, h, w) uint8 with boxes (K, 4), labels (K,) and masks (K, h, w)."""

    pixels: Tensor
    boxes: Tensor
    labels: Tensor
    masks: Tensor


def resized_size(size: tuple[int, int], side: int, longest: int) -> tuple[int, int]:
    """Returns the height and width of an image after resizing.

    >>> resized_size((480, 640), 800, 1333), resized_size((400, 1000), 800, 1333)
    ((800, 1067), (533, 1333))
    """
    scale = min(side / min(size), longest / max(size))
    height, width = (max(1, round(scale * each)) for each in size)
    return height, width


def resize_pixels(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize an image (3, h, w) uint8 bilinearly, with antialiasing."""
    if tuple(pixels.shape[1:]) == size:
        return pixels
    resized = F.interpolate(pixels[None].float(), size, mode="bilinear", antialias=True, align_corners=False)[0]
    return resized.round_().clamp_(0, 255).to(torch.uint8)


def resized(found: Annotated, side: int, longest: int) -> Prepared:
    """Returns the resized image with its objects, without crowds; boxes are clipped to the image."""
    kept = ~found.crowd
    boxes, labels, masks = found.boxes[kept], found.labels[kept], found.masks[kept]
    size = resized_size(found.size, side, longest)
    if size != found.size:
        scale = torch.tensor([size[1] / found.size[1], size[0] / found.size[0]]).repeat(2)
        boxes = boxes * scale
        masks = F.interpolate(masks[None], size, mode="nearest")[0] if len(masks) else masks.new_zeros(0, *size)
    limit = torch.tensor([size[1], size[0]], dtype=boxes.dtype).repeat(2)
    boxes = torch.minimum(boxes.clamp(min=0), limit)
    solid = ((boxes[:, 2:] - boxes[:, :2]) > 1e-3).all(1)  # outside of the image, or nothing left of it
    return Prepared(resize_pixels(found.pixels, size), boxes[solid], labels[solid], masks[solid])


def flipped(image: Prepared) -> Prepared:
    """Returns the mirror image with its objects."""
    width = image.pixels.shape[2]
    boxes = image.boxes.clone()
    boxes[:, [0, 2]] = width - image.boxes[:, [2, 0]]
    return Prepared(image.pixels.flip(2), boxes, image.labels, image.masks.flip(2))
