"""Random scale, crop, flip and colour jitter of images with label maps; the numbers of an image depend on a key only.

Scale, crop and flip are one resampling: the image is read bilinearly, as OpenCV and mmsegmentation read it, and the
label map at the nearest pixel. Positions outside the image are black and ignored.

Shape legend: B batch, H W pixels of the images, h w pixels of the crop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitlab.core.recipe import Segmentation
from vitlab.data.device_copy import to_device
from vitlab.data.seeding import host_random
from vitlab.data.segmentation_pairs import IGNORE

__all__ = ["View", "balanced", "base_scale", "draw_view", "jittered", "viewed"]

_TRIES = 10  # crops that mmsegmentation's RandomCrop draws again at most


@dataclass(frozen=True)
class View:
    """The random numbers of one image.

    Args:
        scale: of the image.
        top, left: position of the crop in the scaled image, as a share of the free range.
        flip: whether the crop is mirrored.
        brightness, contrast, saturation: factors.
        others: (top, left) of other crops, for `balanced`.
    """

    scale: float = 1.0
    top: float = 0.5
    left: float = 0.5
    flip: bool = False
    brightness: float = 1.0
    contrast: float = 1.0
    saturation: float = 1.0
    others: tuple[tuple[float, float], ...] = ()


def draw_view(settings: Segmentation, flip: float, seed: int, epoch: int, position: int) -> View:
    """Draw the numbers of the image at a position of an epoch.

    Args:
        settings: range of the scale, strength of the jitter, and whether there are other crops.
        flip: probability of a horizontal flip.
        seed, epoch, position: the key.
    """
    random = host_random("segmentation", seed, epoch, position)
    scale, top, left, mirrored, *colours = random.random(7).tolist()
    low, high = settings.scale
    brightness, contrast, saturation = (1 + settings.jitter * (2 * colour - 1) for colour in colours)
    others = [(y, x) for y, x in random.random((_TRIES, 2)).tolist()] if settings.cat_max_ratio < 1 else []
    factors = (brightness, contrast, saturation)
    return View(low + (high - low) * scale, top, left, mirrored < flip, *factors, tuple(others))


def base_scale(size: tuple[int, int], limits: tuple[int, int] | None) -> float:
    """The largest factor with which an image fits into limits of the shorter and the longer side; 1 without limits.

    >>> base_scale((300, 400), (512, 2048)) * 300, base_scale((200, 1600), (512, 2048)) * 1600, base_scale((3, 4), None)
    (512.0, 2048.0, 1.0)
    """
    return 1.0 if limits is None else min(min(limits) / min(size), max(limits) / max(size))


def balanced(labels: Tensor, view: View, size: tuple[int, int], settings: Segmentation) -> View:
    """The view at the first of its positions at which no class dominates, as in mmsegmentation's `RandomCrop`.

    A class dominates if it has `cat_max_ratio` of the labelled pixels of the crop or more, or is the only one. If ten
    positions fail, the view is at the eleventh.

    Args:
        labels: (H, W) uint8.
        view: with other positions, unless `cat_max_ratio` is 1.
        size: (h, w) of the crop.
        settings: `cat_max_ratio` and `base_size`.
    """
    own = view
    for top, left in view.others:
        rows, columns = _positions(labels.shape[-2:], [own], size, settings.base_size)
        counts = torch.bincount(_nearest(labels[None], rows, columns, IGNORE).flatten().long(), minlength=256)
        counts[IGNORE] = 0
        if int((counts > 0).sum()) > 1 and int(counts.max()) < settings.cat_max_ratio * int(counts.sum()):
            break
        own = replace(own, top=top, left=left)
    return own


def viewed(
    images: Tensor,
    labels: Tensor,
    views: list[View],
    size: tuple[int, int],
    ignore: int,
    base_size: tuple[int, int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Scale, crop and flip images and label maps.

    A crop is inside the scaled image where it fits; a smaller image is placed inside the crop.

    Args:
        images: (B, 3, H, W) uint8.
        labels: (B, H, W) uint8.
        views: one for each image.
        size: (h, w) of the crop.
        ignore: the label of positions outside an image.
        base_size: see `Segmentation`.

    Returns:
        Pixels (B, 3, h, w) float32 in [0, 255], and labels (B, h, w) uint8.

    >>> image = torch.arange(12, dtype=torch.uint8).view(1, 1, 3, 4).expand(1, 3, 3, 4)
    >>> pixels, labels = viewed(image, image[:, 0], [View(top=1, left=0)], (2, 2), 255)
    >>> pixels[0, 0].tolist(), labels.tolist()
    ([[4.0, 5.0], [8.0, 9.0]], [[[4, 5], [8, 9]]])
    """
    height, width = images.shape[-2:]
    rows, columns = (to_device(each, images.device) for each in _positions((height, width), views, size, base_size))
    inside = _inside(rows, columns, (height, width))
    y = (2 * rows + 1) / height - 1
    x = (2 * columns + 1) / width - 1
    grid = torch.stack(torch.broadcast_tensors(x[:, None, :], y[:, :, None]), dim=-1)
    pixels = F.grid_sample(images.float(), grid, "bilinear", "border", align_corners=False) * inside[:, None]
    return pixels, _nearest(labels, rows, columns, ignore)


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


def _positions(
    shape: Sequence[int], views: list[View], size: tuple[int, int], base_size: tuple[int, int] | None
) -> tuple[Tensor, Tensor]:
    """The rows (B, h) and columns (B, w) of images (H, W) that the pixels of the crops are read at."""
    height, width = shape
    base = base_scale((height, width), base_size)
    rows = torch.stack([_sources(height, size[0], base * view.scale, view.top, False) for view in views])
    return rows, torch.stack([_sources(width, size[1], base * view.scale, view.left, view.flip) for view in views])


def _inside(rows: Tensor, columns: Tensor, shape: Sequence[int]) -> Tensor:
    """Whether positions are inside the image: (B, h), (B, w) -> (B, h, w)."""
    height, width = shape
    return ((rows > -0.5) & (rows < height - 0.5))[:, :, None] & ((columns > -0.5) & (columns < width - 0.5))[:, None]


def _nearest(labels: Tensor, rows: Tensor, columns: Tensor, ignore: int) -> Tensor:
    """Labels (B, H, W) at the nearest pixels: (B, h, w) uint8, `ignore` outside the image."""
    height, width = labels.shape[-2:]
    rows, columns = rows.to(labels.device), columns.to(labels.device)
    nearest_row, nearest_column = rows.round().long().clamp(0, height - 1), columns.round().long().clamp(0, width - 1)
    batch = torch.arange(len(rows), device=labels.device)[:, None, None]
    chosen = labels[batch, nearest_row[:, :, None], nearest_column[:, None, :]]
    return torch.where(_inside(rows, columns, (height, width)), chosen, ignore).to(torch.uint8)


def _sources(length: int, size: int, scale: float, share: float, flip: bool) -> Tensor:
    """The position in the image of each pixel of the crop, along one axis: (size,) float32, 0 at the first centre."""
    scaled = max(1, round(length * scale))
    start = float(np.floor(share * (scaled - size) + 0.5))
    positions: Tensor = (torch.arange(size) + start + 0.5) * (length / scaled) - 0.5
    return positions.flip(0) if flip else positions
