"""Colour, for images of three channels and of one: brightness, tints, and a step in saturation.

Shape legend: B images, C channels (1 or 3), h w pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, which OpenCV, PIL and JPEG share


def luma(images: Tensor) -> Tensor:
    """(B, 1, h, w): 0.299 R + 0.587 G + 0.114 B; a grey image is its own.

    >>> luma(torch.ones(1, 3, 1, 1)).item(), luma(torch.full((1, 1, 1, 1), 0.5)).item()
    (1.0, 0.5)
    """
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    return (red * _LUMA[0]).add_(green, alpha=_LUMA[1]).add_(blue, alpha=_LUMA[2])


def tint(colour: Sequence[float], like: Tensor) -> Tensor:
    """(1, C, 1, 1): a colour given in 0–255, in [0, 1], for images with the channels of `like`.

    >>> tint((255, 0, 0), torch.zeros(1, 3, 2, 2)).flatten().tolist()
    [1.0, 0.0, 0.0]
    """
    return _tint(tuple(colour), like.shape[1], str(like.device))


@lru_cache(maxsize=16)
def _tint(colour: tuple[float, ...], channels: int, device: str) -> Tensor:
    values = torch.tensor(colour, dtype=torch.float32, device=device).view(1, 3, 1, 1) / 255
    return values if channels == 3 else luma(values)


def saturate(images: Tensor, factor: float, shift: float) -> Tensor:
    """S ↦ factor · S + shift, cut to [0, 1], in hue, saturation and value.

    With V = max(R, G, B) and S = 1 − min / V, hue and value stay where every channel c moves to
    V − (V − c) S′ / S. Grey pixels count as red, hue 0, as in scikit-image. An image of one channel stays as it is.

    Args:
        images: (B, C, h, w). factor, shift: of the saturation.

    Returns:
        (B, C, h, w).

    >>> saturate(torch.tensor([0.8, 0.4, 0.6]).view(1, 3, 1, 1), 0.5, 0.0).flatten().tolist()
    [0.8000..., 0.6000..., 0.7000...]
    """
    if images.shape[1] == 1:
        return images.clone()
    value = images.amax(1, keepdim=True)
    chroma = value - images.amin(1, keepdim=True)
    # S' V = factor · chroma + shift · V, cut to [0, V]: dividing by V can be spared.
    wanted = torch.minimum(chroma.mul(factor).add_(value, alpha=shift), value)
    result = value - (value - images) * (wanted / chroma.clamp(min=1e-9))
    if shift:  # a grey pixel turns red: green and blue fall
        fallen = torch.where(chroma == 0, wanted, 0)
        result[:, 1:] -= fallen
    return result.clamp_(0, 1)
