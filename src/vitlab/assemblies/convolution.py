"""The layer that decoders are made of."""

from __future__ import annotations

from torch import nn


def convolution(channels: int, width: int, kernel: int = 1) -> nn.Sequential:
    """Convolution without bias, BatchNorm, ReLU; the size of the map does not change.

    >>> sum(p.numel() for p in convolution(8, 16, 3).parameters())  # 8 · 16 · 9 weights, 2 · 16 of the norm
    1184
    """
    return nn.Sequential(
        nn.Conv2d(channels, width, kernel, padding=kernel // 2, bias=False), nn.BatchNorm2d(width), nn.ReLU()
    )
