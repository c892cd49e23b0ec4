"""Fixed local aggregation before attention: the baselines of token-aware pooling.

Average pooling and dense convolutions, from "Robustifying Token Attention for Vision Transformers" (TAPADL), Table 1.

Shape legend: B batch, N tokens, D channels, h w grid.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from torch import Tensor, nn

from vitlab.core.anatomy import TokenLayout
from vitlab.core.bounds import Range
from vitlab.core.errors import VitlabError
from vitlab.kernels.token_pooling import average
from vitlab.modules.identity_init import blend, initial_weight
from vitlab.modules.map_part import MapPart

__all__ = ["AveragePooling", "ConvolutionPooling"]

Kernel = Annotated[int, Range(1, 31)]


class AveragePooling(MapPart):
    """AvgPool3x3 and AvgPool5x5: every grid token becomes the mean of its neighbourhood.

    y_p = (1/k²) Σ_{|o|∞ <= k/2} x_{p+o} (TAPADL, Table 1). Stride 1; zeros outside the map are counted, as in TAP.

    Args:
        layout: grid and prefix; prefix tokens are unchanged.
        kernel: k, odd.
        identity_init: multiply the change x → y by one learned weight that starts at 0, for trained weights.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> import torch
    >>> AveragePooling(TokenLayout((1, 3)))(torch.tensor([[[9.0], [18.0], [27.0]]])).flatten()
    tensor([3., 6., 5.])
    """

    default_seam: ClassVar[str] = "attn.in"
    weight: nn.Parameter | None

    def __init__(self, layout: TokenLayout, *, kernel: Kernel = 3, identity_init: bool = False) -> None:
        super().__init__(layout)
        self.kernel = _odd(kernel, type(self).__name__)
        self.register_parameter("weight", initial_weight(identity_init))

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        self.layout.check(x.shape[1], type(self).__name__)
        return blend(x, average(x, self.layout.grid, self.kernel, prefix=self.layout.prefix), self.weight)


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
