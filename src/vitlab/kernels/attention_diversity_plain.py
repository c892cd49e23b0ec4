"""The sums over the rows of attention maps that the diversification loss needs, in plain torch.

Shape legend: B batch, H heads, N queries, M keys, d head channels, G maps: B, or B·H if heads are not averaged.
"""

from __future__ import annotations

import torch
from torch import Tensor

_TINY = 1e-8  # smaller lengths count as this one, as in `torch.nn.functional.cosine_similarity`


def row_sums(
    q: Tensor, k: Tensor, bias: Tensor | None, scale: float, threshold: float, released: bool, averaged: bool
) -> tuple[Tensor, Tensor]:
    """Sums over the rows of softmax(q kᵀ · scale + bias), averaged over heads or not, from dense maps.

    Args:
        q, k: (B, H, N, d) and (B, H, M, d).
        bias: added to the logits, broadcastable to (B, H, N, M).
        scale: the factor on q kᵀ.
        threshold: smaller entries are set to zero.
        released: entries equal to the threshold are set to zero too, and the first sum uses all entries.
        averaged: whether heads are averaged first.

    Returns:
        (G, M) each: the sum of the rows, and the sum of the thresholded rows scaled to length one.

    >>> q = torch.zeros(1, 1, 3, 2)
    >>> [row.tolist() for row in row_sums(q, q[:, :, :1], None, 1.0, 0.0, False, True)]
    [[[3.0]], [[3.0]]]
    """
    return sums_of_maps(dense_maps(q, k, bias, scale), threshold, released, averaged)


def row_sums_backward(
    d_totals: Tensor, d_units: Tensor, q: Tensor, k: Tensor, bias: Tensor | None,
    scale: float, threshold: float, released: bool, averaged: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients of q and k from those of the sums, (G, M) each."""
    maps = dense_maps(q, k, bias, scale)
    d_logits = logits_backward(maps_backward(d_totals, d_units, maps, threshold, released, averaged), maps) * scale
    dq, dk = d_logits @ k.to(maps.dtype), d_logits.mT @ q.to(maps.dtype)
    return dq.to(q.dtype), dk.to(k.dtype)


def dense_maps(q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """softmax(q kᵀ · scale + bias), (B, H, N, M), always in float32 or float64."""
    with torch.autocast(q.device.type, enabled=False):
        q, k = (x if x.dtype == torch.float64 else x.float() for x in (q, k))
        logits = q @ k.mT * scale
        maps: Tensor = (logits if bias is None else logits + bias.to(logits.dtype)).softmax(-1)
        return maps


def sums_of_maps(maps: Tensor, threshold: float, released: bool, averaged: bool) -> tuple[Tensor, Tensor]:
    """`row_sums` of maps (B, H, N, M)."""
    rows = maps.mean(1) if averaged else maps.flatten(0, 1)
    kept = rows * (rows > threshold if released else rows >= threshold)
    lengths = torch.linalg.vector_norm(kept, dim=-1, keepdim=True).clamp_min(_TINY)
    return (rows if released else kept).sum(-2), (kept / lengths).sum(-2)


def maps_backward(
    d_totals: Tensor, d_units: Tensor, maps: Tensor, threshold: float, released: bool, averaged: bool
) -> Tensor:
    """The gradient of the maps, (B, H, N, M), from those of their sums."""
    rows = maps.mean(1) if averaged else maps.flatten(0, 1)
    keep = rows > threshold if released else rows >= threshold
    kept = rows * keep
    lengths = torch.linalg.vector_norm(kept, dim=-1, keepdim=True)
    inverse = lengths.clamp_min(_TINY).reciprocal()
    along = (kept * d_units[:, None]).sum(-1, keepdim=True) * inverse**3 * (lengths > _TINY)
    unit = (d_units[:, None] * inverse - kept * along) * keep
    gradient: Tensor = unit + d_totals[:, None] * (1 if released else keep)
    if averaged:
        return (gradient[:, None] / maps.shape[1]).expand_as(maps)
    return gradient.reshape(maps.shape)


def logits_backward(gradient: Tensor, maps: Tensor) -> Tensor:
    """The gradient of the logits from that of the maps."""
    return maps * (gradient - (maps * gradient).sum(-1, keepdim=True))
