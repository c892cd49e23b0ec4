"""Augmentation of chunks of small images on their device: crop, flip, RandAugment, normalise, erase, in timm's order.

Each step is a pair of functions: `draw_…` draws all random numbers from a generator; the other applies them and is a
pure function of tensors of fixed shapes. The chain therefore compiles into one graph without host synchronisation.

Shape legend: n images, C channels, h w pixels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vitlab.core.recipe import Augment
from vitlab.data.cropping import Crops, crop_and_flip, draw_crops, draw_resized_crops, resized_crop
from vitlab.data.erasing import Erasing, draw_erasing, erase
from vitlab.data.randaugment import Layer, apply_layer, draw_layer, parse
from vitlab.data.rectangles import Rectangles

__all__ = ["Draws", "apply_draws", "draw_augment", "normalise"]


class Draws(NamedTuple):
    """All random numbers for a chunk; None or empty for a disabled step."""

    windows: Rectangles | None
    crops: Crops | None
    layers: tuple[Layer, ...]
    increasing: bool
    erasing: Erasing | None


def draw_augment(count: int, shape: tuple[int, int, int], settings: Augment, generator: torch.Generator) -> Draws:
    """Draw all random numbers for n images of shape (C, h, w), on the generator's device."""
    size = shape[1:]
    windows = draw_resized_crops(count, size, generator) if settings.crop == "resized" else None
    crops = None
    if settings.crop == "pad" or settings.flip > 0:
        crops = draw_crops(count, size, settings.flip, generator, padded=settings.crop == "pad")
    policy = parse(settings.randaugment) if settings.randaugment else None
    layers = tuple(draw_layer(count, policy, generator) for _ in range(policy.layers)) if policy else ()
    erasing = draw_erasing(count, shape, settings.erasing, generator) if settings.erasing > 0 else None
    return Draws(windows, crops, layers, bool(policy and policy.increasing), erasing)


def apply_draws(images: Tensor, draws: Draws, mean: Tensor, std: Tensor) -> Tensor:
    """Apply all steps: uint8 (n, C, h, w) and constants (C, 1, 1) -> float32 (n, C, h, w); compiles as one graph."""
    if draws.windows is not None:
        images = resized_crop(images, draws.windows)
    if draws.crops is not None:
        images = crop_and_flip(images, draws.crops)
    for layer in draws.layers:
        images = apply_layer(images, layer, draws.increasing, (255 * mean).round().flatten())
    normalised = normalise(images, mean, std)
    return normalised if draws.erasing is None else erase(normalised, draws.erasing)


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Convert uint8 pixels (n, C, h, w) to (pixels / 255 - mean) / std in float32, bit for bit as torchvision does."""
    return images.float().div_(255).sub_(mean).div_(std)
