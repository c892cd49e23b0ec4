"""The all-MLP decoder of SegFormer (Xie et al. 2021) over a backbone; with FAN-Hybrid it is the model of TAPADL.

Shape legend: B batch, C channels, K classes, H W pixels, h w grid.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vitlab.assemblies.assembly import Classes, Sides, Taps, Width
from vitlab.assemblies.convolution import convolution
from vitlab.assemblies.segmenter import Segmenter, enlarge
from vitlab.core.bounds import Rate

__all__ = ["segformer"]


class SegFormer(Segmenter):
    """SegFormer's decoder over a backbone. See `segformer`."""

    def __init__(
        self,
        backbone: nn.Module,
        classes: int,
        width: int,
        dropout: float,
        size: tuple[int, int] | None,
        taps: Sequence[int] | None,
        stride: tuple[int, int] | None,
        base_size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(backbone, classes, size, taps, stride, base_size)
        self.projections = nn.ModuleList(nn.Conv2d(each, width, 1) for each in self.channels)
        self.fuse = convolution(len(self.channels) * width, width)
        self.dropout = nn.Dropout2d(dropout)
        self.classifier = nn.Conv2d(width, classes, 1)

    def scores(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits (B, K, h, w) at the size of the finest map."""
        maps = self.maps(images)
        finest = maps[0].shape[-2:]
        projected = [enlarge(layer(each), finest) for layer, each in zip(self.projections, maps, strict=True)]
        return self.classifier(self.dropout(self.fuse(torch.cat(projected[::-1], dim=1)))), None


def segformer(
    backbone: nn.Module,
    *,
    classes: Classes = 19,
    width: Width = 768,
    dropout: Rate = 0.1,
    size: Sides | None = None,
    taps: Taps | None = None,
    stride: Sides | None = None,
    base_size: Sides | None = None,
) -> SegFormer:
    """The all-MLP decoder of SegFormer: each map is projected to `width` channels, resized to the finest and fused.

    The maps are not normalised or resized before, as in the code of TAPADL and FAN.

    Args:
        backbone: a model that `describe` supports; it is changed.
        classes: K.
        width: channels of the decoder.
        dropout: of whole channels, before the classifier.
        size: (H, W) of the images; default the backbone's own.
        taps: indices of the four blocks to read; default see `vitlab.assemblies.taps`.
        stride: distance of the windows for images of other sizes; None to resize these images.
        base_size: limits of the shorter and the longer side of images that are segmented in windows, which are resized
            to the largest size within them; None for their own size.
    """
    return SegFormer(backbone, classes, width, dropout, size, taps, stride, base_size)
