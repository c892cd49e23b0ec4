"""Colour operations for images of one or three channels: luma, tints and saturation.

Shape legend: B images, C channels (1 or 3), h w pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as in OpenCV, PIL and JPEG


def luma(images: Tensor) -> Tensor:
    """Returns (B, 1, h, w): 0.299 R + 0.587 G + 0.114 B; a grey image is returned unchanged.

    >>> luma(torch.ones(1, 3, 1, 1)).item(), luma(torch.full((1, 1, 1, 1), 0.5)).item()
    (1.0, 0.5)
    """
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    grey: Tensor = (red * _LUMA[0]).add_(green, alpha=_LUMA[1]).add_(blue, alpha=_LUMA[2])
    return grey


def tint(colour: Sequence[float], like: Tensor) -> Tensor:
    """Returns (1, C, 1, 1): a colour of 0–255 scaled to [0, 1], with the number of channels of `like`.

    >>> tint((255, 0, 0), torch.zeros(1, 3, 2, 2)).flatten().tolist()
    [1.0, 0.0, 0.0]
    """
    return _tint(tuple(colour), like.shape[1], str(like.device))


@lru_cache(maxsize=16)
def _tint(colour: tuple[float, ...], channels: int, device: str) -> Tensor:
    values = torch.tensor(colour, dtype=torch.float32, device=device).view(1, 3, 1, 1) / 255
    return values if channels == 3 else luma(values)


def saturate(images: Tensor, factor: float, shift: float) -> Tensor:
    """S ↦ factor · S + shift in HSV, clamped to [0, 1].

    With V = max(R, G, B) and S = 1 − min / V, hue and value are unchanged if every channel c becomes
    V − (V − c) S′ / S. Grey pixels have hue 0, red, as in scikit-image. An image of one channel is not changed.

    Args:
        images: (B, C, h, w).
        factor, shift: factor and shift of the saturation.

    Returns:
        (B, C, h, w).

    >>> saturate(torch.tensor([0.8, 0.4, 0.6]).view(1, 3, 1, 1), 0.5, 0.0).flatten().tolist()
    [0.8000..., 0.6000..., 0.7000...]
    """
    if images.shape[1] == 1:
        return images.clone()
    value = images.amax(1, keepdim=True)
    chroma = value - images.amin(1, keepdim=True)
    # S' V = factor · chroma + shift · V, clamped to [0, V]: this avoids a division by V.
    target = torch.minimum(chroma.mul(factor).add_(value, alpha=shift), value)
    result = value - (value - images) * (target / chroma.clamp(min=1e-9))
    if shift:  # a grey pixel becomes red: subtract from green and blue
        result[:, 1:] -= torch.where(chroma == 0, target, 0)
    return result.clamp_(0, 1)
