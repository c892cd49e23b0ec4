"""Squeeze-and-excitation on tokens: the baseline that context broadcasting is compared with.

Shape legend: B batch, N tokens, D channels.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.core.bounds import PositiveShare
from vitlab.core.errors import VitlabError
from vitlab.modules.token_kinds import PADDING, TokenKinds, subset_mean

__all__ = ["SqueezeExcite"]


class SqueezeExcite(nn.Module):
    """SE: channels are gated by a function of the mean of all tokens.

    SE(x_i) = x_i ⊙ σ(W_2 ReLU(W_1 (1/N) Σ_j x_j + b_1) + b_2) (Hu et al. 2018, as a baseline in "Scratching Visual
    Transformer's Back with Uniform Attention"). Its position there and the ratio are not published: `mlp.out`,
    the mean over all tokens and a ratio of 1/4 are our choice.

    Args:
        dim: D.
        ratio: width of the hidden layer as a share of D, above 0 and at most 1; at least one channel.
        identity_init: b_2 = ln 999, so that σ is 0.999 at first, and W_2 ten times smaller, for trained weights. All
            parameters still receive gradients.
        kinds: the kinds of the tokens, which `retrofit` fills in; padding is not in the mean.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> part = SqueezeExcite(4)
    >>> _ = torch.nn.init.zeros_(part.expand.weight), torch.nn.init.zeros_(part.expand.bias)
    >>> part(torch.ones(1, 2, 4)).unique()  # σ(0) = 1/2
    tensor([0.5000], grad_fn=<Unique2Backward0>)
    """

    default_seam: ClassVar[str] = "mlp.out"

    def __init__(
        self, dim: int, *, ratio: PositiveShare = 0.25, identity_init: bool = False, kinds: TokenKinds | None = None
    ) -> None:
        super().__init__()
        self.kinds = kinds
        if not 0 < ratio <= 1:
            raise VitlabError(
                f"invalid ratio={ratio} of SqueezeExcite; expected a share of the channels, above 0 and at most 1"
            )
        hidden = max(1, round(dim * ratio))
        self.squeeze = nn.Linear(dim, hidden)
        self.expand = nn.Linear(hidden, dim)
        if identity_init:
            with torch.no_grad():
                self.expand.weight.mul_(0.1)
            nn.init.constant_(self.expand.bias, math.log(999))

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        kinds = self.kinds
        mean = x.mean(dim=1, keepdim=True) if kinds is None else subset_mean(x, kinds.of(x) != PADDING)
        hidden = F.relu(self.squeeze(mean))
        gate: Tensor = self.expand(hidden).sigmoid()
        return x * gate.to(x.dtype)
