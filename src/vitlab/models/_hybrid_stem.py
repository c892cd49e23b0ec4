"""The stem of the FAN hybrids: the first two stages of a ConvNeXt, then a strided convolution.

The released model computes all norms of the stem except the first with the unbiased variance, Σ(x − μ)² / (C − 1);
LayerNorm divides by C. The reason is the LayerNorm2d of timm 0.5.4, which does this for maps that are not contiguous.
Outputs differ by up to 5e-3. Both forms have the same parameters.

Shape legend: B batch, N tokens, C channels, h w grid.
"""

from __future__ import annotations

from typing import Any

from timm.layers import LayerNorm, LayerNorm2d, trunc_normal_
from timm.models.convnext import ConvNeXtStage
from torch import Tensor, nn
from torch.nn import functional as F


def unbiased_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """LayerNorm over the last axis with the unbiased variance: (x − μ) / √(Σ(x − μ)² / (C − 1) + ε) · weight + bias.

    With r = (C − 1) / C it equals √r · (x − μ) / √(σ² + r ε), σ² biased, so the fused LayerNorm computes it.

    >>> import torch
    >>> x = torch.tensor([1.0, 2.0, 3.0])  # the unbiased variance is 1
    >>> unbiased_layer_norm(x, torch.ones(3), torch.zeros(3), 0.0)
    tensor([-1.,  0.,  1.])
    """
    channels = x.shape[-1]
    ratio = (channels - 1) / channels
    return F.layer_norm(x, (channels,), weight * ratio**0.5, bias, ratio * eps)


class UnbiasedLayerNorm(LayerNorm):
    """LayerNorm over the last axis, (B, h, w, C), with the unbiased variance."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, h, w, C) -> (B, h, w, C)."""
        return unbiased_layer_norm(x, self.weight, self.bias, self.eps)


class UnbiasedLayerNorm2d(LayerNorm2d):
    """LayerNorm over the channels of a map, (B, C, h, w), with the unbiased variance."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C, h, w)."""
        x = unbiased_layer_norm(x.permute(0, 2, 3, 1), self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class HybridPatchEmbed(nn.Module):
    """The first two stages of a ConvNeXt, then a 2×2 convolution with stride 2: tokens of 16×16 pixels.

    Args:
        in_chans: channels of the image.
        embed_dim: C.
        depths, dims: blocks and channels of the two stages.
        unbiased: whether all norms except the first use the unbiased variance, as in the released model.
    """

    def __init__(
        self,
        in_chans: int,
        embed_dim: int,
        depths: tuple[int, int] = (3, 3),
        dims: tuple[int, int] = (128, 256),
        unbiased: bool = True,
    ) -> None:
        super().__init__()
        settings: dict[str, Any] = {
            "ls_init_value": 1e-6,
            "norm_layer": UnbiasedLayerNorm2d if unbiased else LayerNorm2d,
            "norm_layer_cl": UnbiasedLayerNorm if unbiased else LayerNorm,
        }
        self.stem = nn.Sequential(nn.Conv2d(in_chans, dims[0], 4, stride=4), LayerNorm2d(dims[0]))
        self.stages = nn.ModuleList(
            [
                ConvNeXtStage(dims[0], dims[0], stride=1, depth=depths[0], **settings),
                ConvNeXtStage(dims[0], dims[1], stride=2, depth=depths[1], **settings),
            ]
        )
        self.proj = nn.Conv2d(dims[1], embed_dim, 2, stride=2)
        self.apply(_initialise_convolution)

    def forward_stages(self, x: Tensor) -> list[Tensor]:
        """Returns the maps after the two stages, of stride 4 and 8."""
        first = self.stages[0](self.stem(x))
        return [first, self.stages[1](first)]

    def embed(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Returns the tokens of the map of the second stage, and their grid."""
        x = self.proj(x)
        return x.flatten(2).transpose(1, 2), (x.shape[2], x.shape[3])

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """(B, 3, H, W) -> (B, N, C) and (h, w)."""
        return self.embed(self.forward_stages(x)[-1])


def _initialise_convolution(module: nn.Module) -> None:
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
