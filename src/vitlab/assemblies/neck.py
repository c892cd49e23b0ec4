"""The neck: maps at four scales, 1/4, 1/8, 1/16 and 1/32 of the image, from the tapped maps of a backbone.

Shape legend: B batch, C channels, h w grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from timm.layers import LayerNorm2d
from torch import Tensor, nn

SCALES = (4, 8, 16, 32)


class Neck(nn.Module):
    """Brings each map to its scale.

    A plain ViT has four maps of one size. As in XCiT and BEiT, transposed convolutions enlarge a map, by 4 or 2, and
    max pooling reduces it. Maps of a hierarchical backbone that have their scale already are normalised only, as Swin's
    segmentation code does.

    Args:
        channels: C of each map.
        strides: pixels per position of each map; factors are rounded to powers of two.

    >>> import torch
    >>> maps = Neck((8,) * 4, (16,) * 4)([torch.zeros(1, 8, 4, 6)] * 4)
    >>> [tuple(each.shape[2:]) for each in maps]
    [(16, 24), (8, 12), (4, 6), (2, 3)]
    """

    def __init__(self, channels: Sequence[int], strides: Sequence[float]) -> None:
        super().__init__()
        plain = len(set(strides)) == 1
        factors = [round(math.log2(stride / scale)) for stride, scale in zip(strides, SCALES, strict=True)]
        self.levels = nn.ModuleList(
            nn.Sequential(*([] if plain else [LayerNorm2d(width)]), *_resize(width, factor))
            for width, factor in zip(channels, factors, strict=True)
        )

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Maps (B, C, h, w) -> maps at the four scales."""
        return [level(each) for level, each in zip(self.levels, maps, strict=True)]


def _resize(width: int, factor: int) -> list[nn.Module]:
    """Layers that enlarge a map by 2**factor, or reduce it by 2**-factor, with at least one position left."""
    if factor < 0:
        return [nn.MaxPool2d(2, ceil_mode=True) for _ in range(-factor)]
    layers: list[nn.Module] = []
    for step in range(factor):
        if step:
            layers += [nn.BatchNorm2d(width), nn.GELU()]
        layers.append(nn.ConvTranspose2d(width, width, 2, stride=2))
    return layers
