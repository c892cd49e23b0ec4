"""Token-aware average pooling: averages a neighbourhood of learned size for each token before attention.

TAP and its multi-kernel variant, from "Robustifying Token Attention for Vision Transformers" (TAPADL), Sec. 3.2.

Shape legend: B batch, N tokens, D channels, K branches, h w grid.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from vitlab.core.anatomy import TokenLayout
from vitlab.core.bounds import Positive, Range
from vitlab.core.errors import VitlabError
from vitlab.modules.local_pooling import box, neighbourhood_mean
from vitlab.modules.map_part import MapPart

__all__ = ["MultiKernelPooling", "TokenAwarePooling"]


class TokenAwarePooling(MapPart):
    """TAP: a weighted sum of average poolings of increasing dilation, with weights predicted per token.

    TAP(x)_p = Σ_{d=0}^{K-1} s_d(x)_p · pool_d(x)_p, s = softmax_d of Conv3×3(BN(Conv3×3(x))) / T (TAPADL, Sec. 3.2 and
    Fig. 2). pool_0 is the identity, pool_d the mean of the 3×3 neighbours at dilation d. As in the released code, zeros
    outside the map are counted (border tokens shrink), the convolutions have no bias and no activation between
    them. 9DK + 2K + 9K² parameters. The released code assumes a square grid; this supports any grid.

    Args:
        dim: D.
        layout: grid and prefix. Prefix tokens are unchanged: our choice, since the paper's models have none here.
        branches: K. K = 1 is exactly the identity, without parameters: the paper's baseline.
        temperature: T.
        identity_init: s_0 is above 0.999 at first, for trained weights; see `_start_with_identity`.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> part = TokenAwarePooling(1, TokenLayout((3, 3)), branches=2)
    >>> _ = torch.nn.init.zeros_(part.predictor[-1].weight)  # both branches then have weight one half
    >>> part(torch.full((1, 9, 1), 9.0)).detach().reshape(3, 3)
    tensor([[6.5000, 7.5000, 6.5000],
            [7.5000, 9.0000, 7.5000],
            [6.5000, 7.5000, 6.5000]])
    """

    default_seam: ClassVar[str] = "attn.in"

    def __init__(
        self,
        dim: int,
        layout: TokenLayout,
        *,
        branches: Annotated[int, Range(1, 64)] = 4,
        temperature: Positive = 1.0,
        identity_init: bool = False,
    ) -> None:
        super().__init__(layout)
        if not isinstance(branches, int) or not 1 <= branches <= 64 or temperature <= 0:
            raise VitlabError(
                f"invalid branches={branches}, temperature={temperature} of {type(self).__name__}; "
                "expected 1 to 64 branches and a temperature above 0"
            )
        self.branches = branches
        self.temperature = temperature
        self.predictor = nn.Sequential()
        if branches > 1:
            self.predictor.extend(
                [
                    nn.Conv2d(dim, branches, 3, padding=1, bias=False),
                    nn.BatchNorm2d(branches),
                    nn.Conv2d(branches, branches, 3, padding=1, bias=False),
                ]
            )
        if identity_init and branches > 1:
            self._start_with_identity()

    @torch.no_grad()
    def _start_with_identity(self) -> None:
        """Initialise the predictor so that the weight of pool_0 is about 1 − 4e-4, and all parameters get gradients.

        The logit of pool_0 is g = ln(1000 (K − 1)) + 1 above the others: channel 0 of the hidden map is constant (BN
        weight 0, bias √g), and the centre of the second convolution multiplies it by T √g. The rest of the second
        convolution is a tenth of torch's initialisation, so that the logits of a token differ from this by less than 1.
        The gap is the product of two parameters, and the gradients of the rest are not zero, so that training with
        AdamW can close it within hundreds of steps.
        """
        norm, second = self.predictor[1], self.predictor[2]
        assert isinstance(norm, nn.BatchNorm2d) and isinstance(second, nn.Conv2d)
        root = math.sqrt(math.log(1000 * (self.branches - 1)) + 1)
        second.weight.mul_(0.1)
        second.weight[:, 0, 1, 1] = 0.0
        second.weight[0, 0, 1, 1] = self.temperature * root
        norm.weight[0], norm.bias[0] = 0.0, root

    @staticmethod
    def neighbourhood(branch: int) -> tuple[int, ...]:
        """Returns the row and column offsets that a branch averages over."""
        return (-branch, 0, branch) if branch else (0,)

    def weigh(self, x: Tensor) -> Tensor:
        """Returns the weight of each branch per token: (B, h, w, D) -> (B, h, w, K), with sum one over K."""
        logits: Tensor = self.predictor(x.permute(0, 3, 1, 2))
        # Autocast computes softmax in float32; convert the weights back to the dtype of the tokens.
        return (logits / self.temperature).softmax(dim=1).permute(0, 2, 3, 1).to(x.dtype)

    def on_map(self, x: Tensor) -> Tensor:
        """(B, h, w, D) -> (B, h, w, D)."""
        if self.branches == 1:
            return x
        weights = self.weigh(x)
        pooled = weights[..., :1] * x
        for branch in range(1, self.branches):
            pooled = pooled + weights[..., branch : branch + 1] * neighbourhood_mean(x, self.neighbourhood(branch))
        return pooled


class MultiKernelPooling(TokenAwarePooling):
    """TAP (multi-kernel): as TAP, but the branches differ in kernel size instead of dilation.

    Branch j is the mean over (2j+1)×(2j+1) neighbours (TAPADL, Table 1). The paper does not give the sizes: 1, 3, 5, 7
    are our choice, so that each branch covers the same extent as in TAP.

    Args:
        dim, layout, branches, temperature, identity_init: as in `TokenAwarePooling`.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> MultiKernelPooling.neighbourhood(2), TokenAwarePooling.neighbourhood(2)
    ((-2, -1, 0, 1, 2), (-2, 0, 2))
    """

    @staticmethod
    def neighbourhood(branch: int) -> tuple[int, ...]:
        """Returns the row and column offsets that a branch averages over."""
        return box(2 * branch + 1)
