"""Attention diversification: encourages different queries to attend to different keys.

ADL, from "Robustifying Token Attention for Vision Transformers" (TAPADL), Sec. 3.3.

Shape legend: B batch, H heads, N queries, M keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from vitlab.core.bounds import Weight
from vitlab.core.errors import VitlabError, unknown
from vitlab.kernels import attention_diversity

__all__ = ["attention_diversification"]

Form = Literal["paper", "released"]
Heads = Literal["mean", "each"]


class Operands(Protocol):
    """The operands of an attention call, such as `recording.AttentionCall`: the map is computed only where needed."""

    @property
    def q(self) -> Tensor | None:
        """(B, H, N, d), or None if only the map is known."""

    @property
    def k(self) -> Tensor | None:
        """(B, H, M, d), or None if only the map is known."""

    @property
    def scale(self) -> float:
        """The factor on q kᵀ."""

    @property
    def bias(self) -> Tensor | None:
        """Added to the logits, broadcastable to (B, H, N, M)."""

    def map(self) -> Tensor:
        """The map, (B, H, N, M)."""


def attention_diversification(
    maps: Sequence[Tensor | Operands], *, tau: Weight = 2.0, form: Form = "paper", heads: Heads = "mean"
) -> Tensor:
    """ADL: how much the rows of attention maps resemble their average row, after small entries are set to zero.

    L = (1/L) Σ_l (1/N) Σ_i cos(Â_i, Ā), Â_i = 1(A_i >= τ/M) · A_i, Ā = (1/N) Σ_i Â_i (TAPADL, Eqs. 1 and 2).

    The released code differs: there Ā is the mean of the unmasked rows and is masked afterwards like the rows, an entry
    is kept only if it is larger than τ/M, and the sum is divided by L + 1e-6. `form` selects one.

    The models of the released code have no class token in their self-attention. Where there is one, as in DeiT, its row
    is one of the N rows and its column one of the M keys: our choice; slice the maps to exclude them.

    Both operands have gradients; the mask is a constant. A row without kept entries counts as 0: near-uniform maps,
    as at random initialisation, have no entry of 2/M, so the loss and its gradient are exactly 0 until
    attention sharpens. Always computed in float32 (or float64), also under autocast: τ/M falls to 5e-4 on large images.

    Args:
        maps: post-softmax attention, one (B, H, N, M) per layer; windows belong in the batch. Sizes may differ. Or the
            operands of attention calls: on a GPU a kernel then computes the loss without storing a map, in float32.
        tau: τ, the threshold as a multiple of uniform attention 1/M.
        form: `"paper"` or `"released"`.
        heads: `"mean"` averages the heads of a layer first, as the released code does; `"each"` treats every head as a
            separate map.

    Returns:
        A scalar: 1 if all rows are equal, about 1/√N if they are disjoint.

    >>> alike = torch.tensor([[1.0, 0.0], [1.0, 0.0]]).reshape(1, 1, 2, 2)
    >>> disjoint = torch.eye(2).reshape(1, 1, 2, 2)
    >>> attention_diversification([alike]), attention_diversification([disjoint])
    (tensor(1.), tensor(0.7071))
    """
    check_settings(tau, form, heads)
    return average_layers([layer_diversification(each, tau=tau, form=form, heads=heads) for each in maps], form)


def layer_diversification(
    attention: Tensor | Operands, *, tau: float = 2.0, form: Form = "paper", heads: Heads = "mean"
) -> Tensor:
    """ADL of one layer, (1/N) Σ_i cos(Â_i, Ā), averaged over images; arguments as in `attention_diversification`.

    >>> layer_diversification(torch.eye(4)[None, None])
    tensor(0.5000)
    """
    if isinstance(attention, Tensor):
        if attention.dim() != 4:
            raise VitlabError(f"attention_diversification got a map of {tuple(attention.shape)}; expected (B, H, N, M)")
    else:
        q, k, bias = attention.q, attention.k, attention.bias
        if q is not None and k is not None and not attention_diversity.missing(q, k, bias):
            return attention_diversity.diversity(
                q, k, scale=attention.scale, bias=bias, tau=tau, released=form == "released", averaged=heads == "mean"
            )
        attention = attention.map()
    with torch.autocast(attention.device.type, enabled=False):
        return _of_map(attention if attention.dtype == torch.float64 else attention.float(), tau, form, heads)


def average_layers(values: Sequence[Tensor], form: Form) -> Tensor:
    """ADL of a model from the values of its layers: their mean, or their sum / (L + 1e-6) in the released form."""
    if len(values) == 0:
        raise VitlabError("attention_diversification got no maps; record the attention of at least one layer")
    layers = torch.stack(list(values))
    return layers.mean() if form == "paper" else layers.sum() / (1e-6 + len(values))


def _of_map(attention: Tensor, tau: float, form: Form, heads: Heads) -> Tensor:
    rows = attention.mean(dim=1) if heads == "mean" else attention.flatten(0, 1)  # (B or B·H, N, M)
    threshold = tau / attention.shape[-1]
    if form == "paper":
        rows = rows * (rows >= threshold)
        average = rows.mean(dim=-2, keepdim=True)
    else:
        average = rows.mean(dim=-2, keepdim=True)
        average = average * (average > threshold)
        rows = rows * (rows > threshold)
    return F.cosine_similarity(average, rows, dim=-1, eps=1e-8).mean()


def check_settings(tau: float, form: str, heads: str) -> None:
    """Raise an error for settings that `attention_diversification` does not have."""
    if form not in get_args(Form):
        raise unknown("form of attention_diversification", form, get_args(Form))
    if heads not in get_args(Heads):
        raise unknown("heads of attention_diversification", heads, get_args(Heads))
    if tau < 0:
        raise VitlabError(f"invalid tau={tau} of attention_diversification; expected a threshold of at least 0")
