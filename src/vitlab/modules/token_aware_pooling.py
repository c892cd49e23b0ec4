"""Token-aware average pooling: averages a neighbourhood of learned size for each token before attention.

TAP and its multi-kernel variant, from "Robustifying Token Attention for Vision Transformers" (TAPADL), Sec. 3.2.

Shape legend: B batch, N tokens, D channels, K branches, h w grid.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.core.anatomy import TokenLayout
from vitlab.core.bounds import Positive, Range
from vitlab.core.errors import VitlabError
from vitlab.kernels.availability import transformed
from vitlab.kernels.token_pooling import choose, pool

__all__ = ["MultiKernelPooling", "TokenAwarePooling"]


class TokenAwarePooling(nn.Module):
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
    nested: ClassVar[bool] = False  # branches differ in dilation, not in kernel size

    def __init__(
        self,
        dim: int,
        layout: TokenLayout,
        *,
        branches: Annotated[int, Range(1, 64)] = 4,
        temperature: Positive = 1.0,
        identity_init: bool = False,
    ) -> None:
        super().__init__()
        self.layout = layout
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

    def weigh(self, x: Tensor) -> Tensor:
        """Returns the weight of each branch per token: (B, N, D) -> (B, h·w, K), with sum one over K."""
        prefix, grid = self.layout.prefix, self.layout.grid
        if transformed() or x.is_meta:
            logits: Tensor = self.predictor(x[:, prefix:].unflatten(1, grid).permute(0, 3, 1, 2))
        else:
            first, norm, second = self.predictor
            assert isinstance(first, nn.Conv2d) and isinstance(second, nn.Conv2d)
            hidden: Tensor = norm(_convolve(x, first.weight, grid, prefix).permute(0, 3, 1, 2))
            # Convolutions of so few channels are slow on GPUs.
            logits = _convolve_few(hidden, second.weight) if x.is_cuda else second(hidden)
        return (logits / self.temperature).softmax(dim=1).flatten(2).mT

    def kernel_form(self, device: torch.device) -> tuple[str, str]:
        """Returns the form of pooling that runs on a device, and why it is not the Triton kernel."""
        return choose(device, torch.float32, self.layout.grid, self.branches)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        self.layout.check(x.shape[1], type(self).__name__)
        if self.branches == 1:
            return x
        return pool(x, self.weigh(x), self.layout.grid, prefix=self.layout.prefix, nested=self.nested)


def _convolve(x: Tensor, weight: Tensor, grid: tuple[int, int], prefix: int) -> Tensor:
    """A 3×3 convolution from D to K channels as one matrix product D -> 9K and nine shifts of K channels.

    The tokens are read once, in their own order; a convolution would first copy them to a map.

    Args:
        x: (B, prefix + h·w, D).
        weight: (K, D, 3, 3).
        grid: h and w.
        prefix: number of tokens before the grid, which are ignored.

    Returns:
        (B, h, w, K)
    """
    branches, (h, w) = len(weight), grid
    matrix = weight.permute(2, 3, 0, 1).flatten(0, 2)  # (9K, D)
    odd = -x.shape[-1] % 8 if x.is_cuda else 0  # products of aligned rows are several times faster on a GPU
    matrix = F.pad(matrix, (0, odd, 0, -len(matrix) % 8))
    parts = F.pad(F.linear(F.pad(x, (0, odd)) if odd else x, matrix)[:, prefix:].unflatten(1, grid), (0, 0, 1, 1, 1, 1))
    shifted = [
        parts[:, down : down + h, right : right + w, (3 * down + right) * branches :][..., :branches]
        for down in range(3)
        for right in range(3)
    ]
    return sum(shifted[1:], shifted[0])


def _convolve_few(x: Tensor, weight: Tensor) -> Tensor:
    """A 3×3 convolution of few channels as one matrix product of the nine neighbours of each token.

    Its backward is a matrix product too, so that a compiler computes the gradient of the outputs once, not for each of
    the neighbours.

    Args:
        x: (B, C, h, w).
        weight: (K, C, 3, 3).

    Returns:
        (B, K, h, w)
    """
    branches, h, w = len(weight), *x.shape[2:]
    padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1))
    # torch.compile fuses concatenations of at most 8 tensors.
    across = torch.cat([padded[:, :, right : right + w] for right in range(3)], -1)
    around = torch.cat([across[:, down : down + h] for down in range(3)], -1)
    matrix = weight.permute(0, 2, 3, 1).flatten(1)  # (K, 9C)
    odd = -matrix.shape[1] % 8
    columns = F.pad(around, (0, odd))
    found: Tensor = F.linear(columns, F.pad(matrix, (0, odd, 0, -branches % 8)))
    return found[..., :branches].permute(0, 3, 1, 2)


class MultiKernelPooling(TokenAwarePooling):
    """TAP (multi-kernel): as TAP, but the branches differ in kernel size instead of dilation.

    Branch j is the mean over (2j+1)×(2j+1) neighbours (TAPADL, Table 1). The paper does not give the sizes: 1, 3, 5, 7
    are our choice, so that each branch covers the same extent as in TAP.

    Args:
        dim, layout, branches, temperature, identity_init: as in `TokenAwarePooling`.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> part = MultiKernelPooling(1, TokenLayout((1, 5)), branches=3)
    >>> _ = torch.nn.init.zeros_(part.predictor[-1].weight)  # each branch then has weight one third
    >>> part(torch.tensor([[[0.0], [0.0], [75.0], [0.0], [0.0]]])).detach().flatten()
    tensor([ 1.0000,  3.7778, 28.7778,  3.7778,  1.0000])
    """

    nested: ClassVar[bool] = True
