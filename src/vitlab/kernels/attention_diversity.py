"""The attention diversification loss of a layer from its queries and keys, without storing a map.

With thresholded rows R_i and their mean Ā, (1/N) Σ_i cos(R_i, Ā) = Ā · Σ_i R_i / |R_i| / (N |Ā|): two sums over the
rows of a map, M numbers each, are enough. On GPUs a kernel computes them and their gradients from queries and keys.

Shape legend: B batch, H heads, N queries, M keys, d head channels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitlab.kernels import attention_diversity_triton
from vitlab.kernels.attention_tiles import unsupported_size
from vitlab.kernels.availability import transformed, unavailable

OPERATOR = attention_diversity_triton.OPERATOR
MAXIMUM_KEYS_SINGLE = 128  # with more keys the backward needs more shared memory than an H200 has


def diversity(
    q: Tensor, k: Tensor, *, scale: float, bias: Tensor | None, tau: float, released: bool, averaged: bool
) -> Tensor:
    """The mean over maps of (1/N) Σ_i cos(R_i, Ā), as `attention_diversification` defines it for one layer.

    Args:
        q, k: (B, H, N, d) and (B, H, M, d), which `missing` accepts.
        scale: the factor on q kᵀ.
        bias: added to the logits, broadcastable to (B, H, N, M).
        tau: the threshold as a multiple of 1/M.
        released: whether to follow the released code instead of the paper.
        averaged: whether heads are averaged first.
    """
    threshold = tau / k.shape[2]
    if bias is not None:
        bias = bias.detach()
    totals, units, _ = attention_diversity_triton.row_sums(q, k, bias, scale, threshold, released, averaged)
    return from_sums(totals, units, q.shape[2], threshold, released)


def from_sums(totals: Tensor, units: Tensor, rows: int, threshold: float, released: bool) -> Tensor:
    """The value from the two sums over rows, (G, M) each.

    >>> from_sums(torch.tensor([[2.0, 0.0]]), torch.tensor([[2.0, 0.0]]), 2, 0.5, False)
    tensor(1.)
    """
    average = totals / rows
    if released:
        average = average * (average > threshold)
    lengths = torch.linalg.vector_norm(average, dim=-1).clamp_min(1e-8)
    value: Tensor = ((average * units).sum(-1) / lengths).mean() / rows
    return value


def missing(q: Tensor, k: Tensor, bias: Tensor | None) -> str:
    """Returns why `diversity` does not support these operands, or an empty string."""
    if transformed():
        return "torch.func and torch.export need plain operations"
    return unsupported(q, k, bias) or unavailable(OPERATOR, q.device, q.dtype)


def unsupported(q: Tensor, k: Tensor, bias: Tensor | None) -> str:
    """Returns why operands like these are not supported on any device, or an empty string."""
    if k.shape[1] != q.shape[1]:
        return "queries share keys"
    if bias is not None and bias.requires_grad:
        return "the gradient of the bias needs maps"
    if q.dtype != k.dtype:
        return f"queries are {q.dtype}, keys {k.dtype}"
    if q.dtype == torch.float32 and k.shape[2] > MAXIMUM_KEYS_SINGLE:
        return f"{k.shape[2]} keys in float32; at most {MAXIMUM_KEYS_SINGLE}"
    return unsupported_size(k.shape[2], q.shape[3])
