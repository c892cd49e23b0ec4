"""UperNet (Xiao et al. 2018): pyramid pooling on the coarsest map, a feature pyramid, and an auxiliary head.

With ViT-Ti/S/B and 150 classes it has the 34.1, 53.5 and 127.0 M parameters of CB Table 6.

Shape legend: B batch, C channels, K classes, H W pixels, h w grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor, nn

from vitlab.assemblies.assembly import Classes, Sides, Taps, Width
from vitlab.assemblies.convolution import convolution
from vitlab.assemblies.neck import Neck
from vitlab.assemblies.segmenter import Segmenter, enlarge
from vitlab.core.bounds import Range, Rate

__all__ = ["upernet"]

POOLS = (1, 2, 3, 6)


class PyramidPooling(nn.Module):
    """Averages over grids of 1, 2, 3 and 6 cells a side, resized and concatenated with the map (PSPNet)."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(side), convolution(channels, width)) for side in POOLS
        )
        self.fuse = convolution(channels + len(POOLS) * width, width, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, width, h, w)."""
        pooled = [enlarge(branch(x), x.shape[-2:]) for branch in self.branches]
        fused: Tensor = self.fuse(torch.cat([x, *pooled], dim=1))
        return fused


class FeaturePyramid(nn.Module):
    """Adds coarse maps to fine ones, from the top down, and fuses all at the finest scale."""

    def __init__(self, channels: Sequence[int], width: int) -> None:
        super().__init__()
        self.pooling = PyramidPooling(channels[-1], width)
        self.laterals = nn.ModuleList(convolution(each, width) for each in channels[:-1])
        self.outputs = nn.ModuleList(convolution(width, width, 3) for _ in channels[:-1])
        self.fuse = convolution(len(channels) * width, width, 3)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Maps from fine to coarse -> (B, width, h, w) at the finest scale."""
        levels = [lateral(each) for lateral, each in zip(self.laterals, maps, strict=False)]
        levels.append(self.pooling(maps[-1]))
        for level in range(len(levels) - 1, 0, -1):
            levels[level - 1] = levels[level - 1] + enlarge(levels[level], levels[level - 1].shape[-2:])
        smooth = [output(level) for output, level in zip(self.outputs, levels, strict=False)]
        finest = smooth[0].shape[-2:]
        fused: Tensor = self.fuse(torch.cat([enlarge(each, finest) for each in (*smooth, levels[-1])], dim=1))
        return fused


class UperNet(Segmenter):
    """UperNet over a backbone. See `upernet`."""

    def __init__(
        self,
        backbone: nn.Module,
        classes: int,
        width: int,
        auxiliary_width: int,
        dropout: float,
        size: tuple[int, int] | None,
        taps: Sequence[int] | None,
        stride: tuple[int, int] | None,
        base_size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(backbone, classes, size, taps, stride, base_size)
        self.neck = Neck(self.channels, self.strides)
        self.decoder = nn.Sequential(FeaturePyramid(self.channels, width), nn.Dropout2d(dropout))
        self.classifier = nn.Conv2d(width, classes, 1)
        if auxiliary_width:
            self.auxiliary = nn.Sequential(
                convolution(self.channels[2], auxiliary_width, 3),
                nn.Dropout2d(dropout),
                nn.Conv2d(auxiliary_width, classes, 1),
            )

    def scores(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits (B, K, h, w) at 1/4 of the image, and those of the auxiliary head at 1/16 in training mode."""
        maps = self.neck(self.maps(images))
        auxiliary = self.auxiliary(maps[2]) if self.training and hasattr(self, "auxiliary") else None
        return self.classifier(self.decoder(maps)), auxiliary


def upernet(
    backbone: nn.Module,
    *,
    classes: Classes = 150,
    width: Width = 512,
    auxiliary_width: Annotated[int, Range(0, 8192)] = 256,
    dropout: Rate = 0.1,
    size: Sides | None = None,
    taps: Taps | None = None,
    stride: Sides | None = None,
    base_size: Sides | None = None,
) -> UperNet:
    """UperNet over a backbone.

    Args:
        backbone: a model that `describe` supports; it is changed.
        classes: K.
        width: channels of the decoder.
        auxiliary_width: channels of the auxiliary head on the third scale; 0 for none.
        dropout: of whole channels, before the classifiers.
        size: (H, W) of the images; default the backbone's own.
        taps: indices of the four blocks to read; default see `vitlab.assemblies.taps`.
        stride: distance of the windows for images of other sizes; None to resize these images.
        base_size: limits of the shorter and the longer side of images that are segmented in windows, which are resized
            to the largest size within them; None for their own size.
    """
    return UperNet(backbone, classes, width, auxiliary_width, dropout, size, taps, stride, base_size)
