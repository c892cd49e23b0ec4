"""Mixup and CutMix: each image of a batch, and its label, is mixed with that of a partner.

Both compute w · image + (1 - w) · partner with a map of weights w. For Mixup w is λ everywhere; for CutMix it
is 0 in a box and 1 elsewhere. The partner of image i of B is image B - 1 - i, as in timm. No soft labels are made: the
loss is λ CE(label) + (1 - λ) CE(partner's label), which is the same number.

Shape legend: K batches mixed at once, B batch, C channels, h w pixels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitlab.core.recipe import Augment
from vitlab.data.seeding import host_random

__all__ = ["Mixes", "draw_mixes", "mix_images", "mix_labels"]


class Mixes(NamedTuple):
    """How K batches are mixed.

    Args:
        weights: (K,) λ, the weight of an image's own label; for CutMix the share of the image outside the box.
        blends: (K,) the weight of an image outside the box.
        boxes: (K, 4) top, bottom, left, right of the box that is taken from the partner; empty for Mixup.
    """

    weights: Tensor
    blends: Tensor
    boxes: Tensor


def draw_mixes(settings: Augment, size: tuple[int, int], seed: int, epoch: int, batches: range) -> Mixes:
    """Draw the mixes of some batches of an epoch, each from its own seed, on the host and in float32.

    λ ~ Beta(α, α), α of Mixup (Zhang et al., Sec. 2) or of CutMix (Yun et al., Sec. 3.1); CutMix's box has the sides
    √(1 - λ) h and √(1 - λ) w and a uniform centre, is clipped to the image, and λ is corrected to the remaining area.

    Args:
        settings: `mixup`, `cutmix`, `mix_probability` and `switch_probability` are used.
        size: h, w.
        seed, epoch: of the run.
        batches: indices of the batches in the epoch; their number is K.

    >>> draw_mixes(Augment(), (32, 32), 0, 0, range(2)).weights
    tensor([1., 1.])
    """
    drawn = [_draw_mix(settings, size, host_random("mix", seed, epoch, batch)) for batch in batches]
    weights, blends, boxes = zip(*drawn, strict=True)
    return Mixes(torch.tensor(weights), torch.tensor(blends), torch.tensor(boxes))


def mix_images(images: Tensor, mixes: Mixes) -> Tensor:
    """Mix each batch with itself in reverse, (K, B, C, h, w) in and out.

    >>> half = Mixes(torch.tensor([0.75]), torch.tensor([0.75]), torch.zeros(1, 4, dtype=torch.int64))
    >>> mix_images(torch.tensor([0.0, 4.0]).view(1, 2, 1, 1, 1), half).flatten()
    tensor([1., 3.])
    """
    top, bottom, left, right = mixes.boxes[:, :, None].unbind(1)
    y, x = (torch.arange(side, device=images.device) for side in images.shape[3:])
    boxed = ((y >= top) & (y < bottom))[:, :, None] & ((x >= left) & (x < right))[:, None, :]
    weights = torch.where(boxed, 0.0, mixes.blends[:, None, None])[:, None, None]
    return torch.lerp(images.flip(1), images, weights.to(images.dtype))  # lerp is exact at 0 and at 1


def mix_labels(labels: Tensor, mixes: Mixes) -> tuple[Tensor, Tensor]:
    """Returns the partners' labels and the weights λ of the own labels, (K, B) each, for labels (K, B)."""
    return labels.flip(1), mixes.weights[:, None].expand(labels.shape)


def _draw_mix(
    settings: Augment, size: tuple[int, int], random: np.random.Generator
) -> tuple[float, float, tuple[int, int, int, int]]:
    """Returns λ, the blend and the box of one batch."""
    mixed, switch = random.random(2)
    use_cutmix = settings.cutmix > 0 and (settings.mixup <= 0 or switch < settings.switch_probability)
    alpha = settings.cutmix if use_cutmix else settings.mixup
    if alpha <= 0 or mixed >= settings.mix_probability:
        return 1.0, 1.0, (0, 0, 0, 0)
    weight = float(random.beta(alpha, alpha))
    if not use_cutmix:
        return weight, weight, (0, 0, 0, 0)
    top, bottom = _box_side(size[0], weight, random)
    left, right = _box_side(size[1], weight, random)
    return 1 - (bottom - top) * (right - left) / (size[0] * size[1]), 1.0, (top, bottom, left, right)


def _box_side(side: int, weight: float, random: np.random.Generator) -> tuple[int, int]:
    """Returns the start and end of the box along one side."""
    length, centre = int(side * (1 - weight) ** 0.5), int(random.integers(side))
    return max(centre - length // 2, 0), min(centre + (length + 1) // 2, side)
