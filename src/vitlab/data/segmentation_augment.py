"""Random scale, crop, flip and colour jitter of images with label maps; the numbers of an image depend on a key only.

Scale, crop and flip are one resampling: the image is read bilinearly, as OpenCV and mmsegmentation read it, and the
label map at the nearest pixel. Positions outside the image are black and ignored.

Shape legend: B batch, H W pixels of the images, h w pixels of the crop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitlab.core.recipe import Segmentation
from vitlab.data.device_copy import to_device
from vitlab.data.seeding import host_random

__all__ = ["View", "draw_view", "jittered", "viewed"]


@dataclass(frozen=True)
class View:
    """The random numbers of one image.

    Args:
        scale: of the image.
        top, left: position of the crop in the scaled image, as a share of the free range.
        flip: whether the crop is mirrored.
        brightness, contrast, saturation: factors.
    """

    scale: float = 1.0
    top: float = 0.5
    left: float = 0.5
    flip: bool = False
    brightness: float = 1.0
    contrast: float = 1.0
    saturation: float = 1.0


def draw_view(settings: Segmentation, flip: float, seed: int, epoch: int, position: int) -> View:
    """Draw the numbers of the image at a position of an epoch.

    Args:
        settings: range of the scale, and strength of the jitter.
        flip: probability of a horizontal flip.
        seed, epoch, position: the key.
    """
    random = host_random("segmentation", seed, epoch, position)
    scale, top, left, mirrored, *colours = random.random(7).tolist()
    low, high = settings.scale
    factors = [1 + settings.jitter * (2 * colour - 1) for colour in colours]
    return View(low + (high - low) * scale, top, left, mirrored < flip, *factors)


def viewed(
    images: Tensor, labels: Tensor, views: list[View], size: tuple[int, int], ignore: int
) -> tuple[Tensor, Tensor]:
    """Scale, crop and flip images and label maps.

    A crop is inside the scaled image where it fits; a smaller image is placed inside the crop.

    Args:
        images: (B, 3, H, W) uint8.
        labels: (B, H, W) uint8.
        views: one for each image.
        size: (h, w) of the crop.
        ignore: the label of positions outside an image.

    Returns:
        Pixels (B, 3, h, w) float32 in [0, 255], and labels (B, h, w) uint8.

    >>> image = torch.arange(12, dtype=torch.uint8).view(1, 1, 3, 4).expand(1, 3, 3, 4)
    >>> pixels, labels = viewed(image, image[:, 0], [View(top=1, left=0)], (2, 2), 255)
    >>> pixels[0, 0].tolist(), labels.tolist()
    ([[4.0, 5.0], [8.0, 9.0]], [[[4, 5], [8, 9]]])
    """
    height, width = images.shape[-2:]
    rows = torch.stack([_sources(height, size[0], view.scale, view.top, False) for view in views])
    columns = torch.stack([_sources(width, size[1], view.scale, view.left, view.flip) for view in views])
    rows, columns = to_device(rows, images.device), to_device(columns, images.device)
    inside = ((rows > -0.5) & (rows < height - 0.5))[:, :, None] & ((columns > -0.5) & (columns < width - 0.5))[:, None]
    y = (2 * rows + 1) / height - 1
    x = (2 * columns + 1) / width - 1
    grid = torch.stack(torch.broadcast_tensors(x[:, None, :], y[:, :, None]), dim=-1)
    pixels = F.grid_sample(images.float(), grid, "bilinear", "border", align_corners=False) * inside[:, None]
    nearest_row, nearest_column = rows.round().long().clamp(0, height - 1), columns.round().long().clamp(0, width - 1)
    batch = torch.arange(len(views), device=images.device)[:, None, None]
    chosen = labels[batch, nearest_row[:, :, None], nearest_column[:, None, :]]
    return pixels, torch.where(inside, chosen, ignore).to(torch.uint8)


def jittered(pixels: Tensor, views: list[View]) -> Tensor:
    """Change brightness, contrast (around the mean of the image) and saturation of pixels (B, 3, h, w) in [0, 1].

    >>> jittered(torch.full((1, 3, 1, 1), 0.5), [View(brightness=1.5)]).flatten().tolist()
    [0.75, 0.75, 0.75]
    """
    factors = torch.tensor([[view.brightness, view.contrast, view.saturation] for view in views], dtype=pixels.dtype)
    brightness, contrast, saturation = to_device(factors, pixels.device).view(-1, 3, 1, 1, 1).unbind(1)
    pixels = pixels * brightness
    centre = pixels.mean((1, 2, 3), keepdim=True)
    pixels = torch.lerp(centre, pixels, contrast)
    grey = 0.299 * pixels[:, :1] + 0.587 * pixels[:, 1:2] + 0.114 * pixels[:, 2:]
    return torch.lerp(grey, pixels, saturation).clamp(0, 1)


def _sources(length: int, size: int, scale: float, share: float, flip: bool) -> Tensor:
    """The position in the image of each pixel of the crop, along one axis: (size,) float32, 0 at the first centre."""
    scaled = max(1, round(length * scale))
    start = float(np.floor(share * (scaled - size) + 0.5))
    positions: Tensor = (torch.arange(size) + start + 0.5) * (length / scaled) - 0.5
    return positions.flip(0) if flip else positions
