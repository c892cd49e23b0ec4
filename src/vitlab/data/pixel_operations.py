"""Pillow's colour operations on a batch, with one argument per image.

All take uint8 images (n, 3, h, w) and arguments (n,), and return uint8. `equalize`, `invert` and those with a
threshold or bits equal Pillow's; `autocontrast` and the four blends, which Pillow truncates after products in other
precisions, are within one grey level of it.

Shape legend: n images, 3 channels, h w pixels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "autocontrast",
    "brightness",
    "color",
    "contrast",
    "equalize",
    "invert",
    "posterize",
    "sharpness",
    "solarize",
    "solarize_add",
]


def autocontrast(images: Tensor, _: Tensor) -> Tensor:
    """Stretch each channel to the full range: 255 (x - min) / (max - min), rounded down.

    >>> autocontrast(torch.tensor([[[[10, 15, 20]]]], dtype=torch.uint8), torch.zeros(1)).flatten().tolist()
    [0, 127, 255]
    """
    values = images.int()
    low, high = values.amin((2, 3), keepdim=True), values.amax((2, 3), keepdim=True)
    stretched = (values - low) * 255 // (high - low).clamp(min=1)
    return torch.where(high > low, stretched, values).to(torch.uint8)


def equalize(images: Tensor, _: Tensor) -> Tensor:
    """Flatten each channel's histogram: x becomes (step / 2 + the number of darker pixels) / step.

    step is a 255th of the pixels that are not of the brightest value; if it is 0, the channel is unchanged.

    >>> picture = torch.arange(4, dtype=torch.uint8).repeat(1, 1, 32, 16)
    >>> equalize(picture, torch.zeros(1)).flatten()[:4].tolist()
    [0, 85, 171, 255]
    """
    values = images.flatten(2).long()
    ones = torch.ones((), dtype=torch.int32, device=images.device).expand_as(values)
    histogram = torch.zeros(*values.shape[:2], 256, dtype=torch.int32, device=images.device).scatter_add(
        2, values, ones
    )
    brightest = histogram.gather(2, values.amax(2, keepdim=True))
    step = (values.shape[2] - brightest) // 255
    darker = histogram.cumsum(2) - histogram
    table = ((step // 2 + darker) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, table.gather(2, values), values).to(torch.uint8).view_as(images)


def invert(images: Tensor, _: Tensor) -> Tensor:
    """255 - x."""
    return 255 - images


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest `bits` bits, 0 to 8. 0 bits give black, as in Pillow before 13; later versions raise.

    >>> posterize(torch.full((1, 1, 1, 1), 255, dtype=torch.uint8), torch.tensor([2.0])).item()
    192
    """
    mask = 256 - torch.exp2(8 - bits.clamp(0, 8))
    return images & mask.round().to(torch.uint8)[:, None, None, None]


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert pixels of at least `threshold`, 0 to 256."""
    return torch.where(images < threshold[:, None, None, None], images, 255 - images)


def solarize_add(images: Tensor, addition: Tensor) -> Tensor:
    """Add to pixels below 128, up to 255.

    >>> solarize_add(torch.tensor([[[[100, 200]]]], dtype=torch.uint8), torch.tensor([50.0])).flatten().tolist()
    [150, 200]
    """
    lighter = (images + addition[:, None, None, None]).clamp(max=255)
    return torch.where(images < 128, lighter.to(torch.uint8), images)


def color(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey image: factor 0 is grey, 1 the image."""
    return _blend(_grey(images), images, factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean of the grey image, rounded: factor 0 is flat, 1 the image."""
    mean = (_grey(images).mean((2, 3), keepdim=True) + 0.5).floor()
    return _blend(mean, images, factor)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with black: factor 0 is black, 1 the image.

    >>> brightness(torch.full((1, 3, 1, 1), 101, dtype=torch.uint8), torch.tensor([0.5])).flatten().tolist()
    [50, 50, 50]
    """
    return _blend(torch.zeros((), device=images.device), images, factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with a smoothed image: 0 is smooth, 1 the image, 2 sharp. Smoothing: 3 × 3 of ones with 5 in the middle."""
    x = images.float()
    rows = x[:, :, :-2] + x[:, :, 1:-1] + x[:, :, 2:]
    box = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    smooth = ((box + 4 * x[:, :, 1:-1, 1:-1]) / 13 + 0.5).floor()
    inner = F.pad(torch.ones_like(smooth[:1, :1], dtype=torch.bool), (1, 1, 1, 1))  # the border stays, as in Pillow
    return _blend(torch.where(inner, F.pad(smooth, (1, 1, 1, 1)), x), images, factor)


def _grey(images: Tensor) -> Tensor:
    """(n, 1, h, w) float32: Pillow's luma, in its fixed-point arithmetic."""
    red, green, blue = images.int().unbind(1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16)[:, None].float()


def _blend(start: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """start + factor · (image - start), rounded down and clamped to [0, 255]."""
    moved = start + factor[:, None, None, None] * (images.float() - start)
    return moved.clamp(0, 255).to(torch.uint8)
