"""Fixed local aggregation before attention: the baselines of token-aware pooling.

Average pooling and dense convolutions, from "Robustifying Token Attention for Vision Transformers" (TAPADL), Table 1.

Shape legend: B batch, N tokens, D channels, h w grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.core.anatomy import TokenLayout
from vitlab.core.bounds import Range
from vitlab.core.errors import VitlabError
from vitlab.modules.identity_init import blend, initial_weight
from vitlab.modules.map_part import MapPart

__all__ = ["AveragePooling", "ConvolutionPooling"]

Kernel = Annotated[int, Range(1, 31)]


def neighbourhood_mean(x: Tensor, offsets: Sequence[int]) -> Tensor:
    """Returns the mean over neighbours at the given row and column offsets; zeros outside the map are included.

    A box is separable: shifted rows are added, then shifted columns. With channels last this is a quarter faster than a
    depthwise convolution, forward and backward on a CPU, and eight times faster than unfold.

    Args:
        x: maps, (B, h, w, D).
        offsets: symmetric about 0, for example (-2, 0, 2) for a 3×3 neighbourhood with dilation 2.

    Returns:
        (B, h, w, D): sums over len(offsets)² neighbours, always divided by that number.

    >>> neighbourhood_mean(torch.full((1, 2, 2, 1), 9.0), (-1, 0, 1)).flatten()
    tensor([4., 4., 4., 4.])
    """
    if len(offsets) == 1:
        return x
    _, h, w, _ = x.shape
    reach = max(offsets)
    padded = F.pad(x, (0, 0, reach, reach, reach, reach))
    rows = reduce(torch.add, [padded[:, reach + offset : reach + offset + h] for offset in offsets])
    both = reduce(torch.add, [rows[:, :, reach + offset : reach + offset + w] for offset in offsets])
    return both / len(offsets) ** 2


def box(kernel: int) -> tuple[int, ...]:
    """Returns the offsets of a dense k×k neighbourhood.

    >>> box(5)
    (-2, -1, 0, 1, 2)
    """
    return tuple(range(-(kernel // 2), kernel // 2 + 1))


class AveragePooling(MapPart):
    """AvgPool3x3 and AvgPool5x5: every grid token becomes the mean of its neighbourhood.

    y_p = (1/k²) Σ_{|o|∞ <= k/2} x_{p+o} (TAPADL, Table 1). Stride 1; zeros outside the map are counted, as in TAP.

    Args:
        layout: grid and prefix; prefix tokens are unchanged.
        kernel: k, odd.
        identity_init: multiply the change x → y by one learned weight that starts at 0, for trained weights.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> AveragePooling(TokenLayout((1, 3)))(torch.tensor([[[9.0], [18.0], [27.0]]])).flatten()
    tensor([3., 6., 5.])
    """

    default_seam: ClassVar[str] = "attn.in"
    weight: nn.Parameter | None

    def __init__(self, layout: TokenLayout, *, kernel: Kernel = 3, identity_init: bool = False) -> None:
        super().__init__(layout)
        self.kernel = _odd(kernel, type(self).__name__)
        self.register_parameter("weight", initial_weight(identity_init))

    def on_map(self, x: Tensor) -> Tensor:
        """(B, h, w, D) -> (B, h, w, D)."""
        return blend(x, neighbourhood_mean(x, box(self.kernel)), self.weight)


class ConvolutionPooling(MapPart):
    """Conv3x3 and Conv5x5: a dense convolution over the grid, all channels to all channels.

    y_p = Σ_o W_o x_{p+o}, W_o in R^(D×D) (TAPADL, Table 1). Stride 1, zero padding, no bias: 16 blocks of D = 448 take
    FAN-B-Hybrid from 50,475,048 to 79,376,424 (k = 3) and 130,756,648 (k = 5) parameters, the paper's 79.4 and 130.7 M.

    Args:
        dim: D.
        layout: grid and prefix; prefix tokens are unchanged.
        kernel: k, odd.
        identity_init: W_0 = 1 and the other W_o = 0 at first, for trained weights.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> sum(weight.numel() for weight in ConvolutionPooling(448, TokenLayout((14, 14))).parameters()) == 9 * 448**2
    True
    """

    default_seam: ClassVar[str] = "attn.in"

    def __init__(self, dim: int, layout: TokenLayout, *, kernel: Kernel = 3, identity_init: bool = False) -> None:
        super().__init__(layout)
        kernel = _odd(kernel, type(self).__name__)
        self.convolution = nn.Conv2d(dim, dim, kernel, padding=kernel // 2, bias=False)
        if identity_init:
            nn.init.dirac_(self.convolution.weight)

    def on_map(self, x: Tensor) -> Tensor:
        """(B, h, w, D) -> (B, h, w, D)."""
        mixed: Tensor = self.convolution(x.permute(0, 3, 1, 2))
        return mixed.permute(0, 2, 3, 1)


def _odd(kernel: int, part: str) -> int:
    if not isinstance(kernel, int) or kernel < 1 or kernel % 2 == 0:
        raise VitlabError(f"invalid kernel={kernel!r} of {part}; expected an odd number, for example 3 or 5")
    return kernel
