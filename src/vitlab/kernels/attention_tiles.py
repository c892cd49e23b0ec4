"""What kernels share that compute some rows of a map from queries and keys, all columns at once.

Shape legend: N queries, M keys, d head channels, ROWS × COLUMNS a tile of a map.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # only CUDA builds of torch include it
    triton = None

MAXIMUM_KEYS = 256
MAXIMUM_CHANNELS = 64
LOG2_E = 1.4426950408889634


def empty_heads(x: Tensor) -> Tensor:
    """An empty tensor (B, H, N, d) in the memory order (B, N, H, d), that of the projection of queries and keys."""
    batch, heads, count, channels = x.shape
    return x.new_empty(batch, count, heads, channels).transpose(1, 2)


def empty_sums(*size: int, like: Tensor) -> Tensor:
    """An empty tensor for sums over the entries of maps: float64 for operands in float64, else float32."""
    return like.new_empty(size, dtype=torch.float64 if like.dtype == torch.float64 else torch.float32)


def bias_strides(q: Tensor, k: Tensor, bias: Tensor | None) -> tuple[int, ...]:
    """The strides of a bias that is broadcast to (B, H, N, M); zeros without one."""
    return (0, 0, 0, 0) if bias is None else bias.expand(*q.shape[:3], k.shape[2]).stride()


def constants(q: Tensor, k: Tensor, bias: Tensor | None) -> dict[str, Any]:
    """The constants of all kernels: whether there is a bias, and the size of a tile."""
    return {
        "BIASED": bias is not None,
        "COLUMNS": max(16, triton.next_power_of_2(k.shape[2])),
        "DEEP": max(16, triton.next_power_of_2(q.shape[3])),
    }


def unsupported_size(keys: int, channels: int) -> str:
    """Returns why maps of this size are not supported, or an empty string.

    >>> unsupported_size(197, 64), unsupported_size(1025, 64)
    ('', '1025 keys; at most 256')
    """
    if keys > MAXIMUM_KEYS:
        return f"{keys} keys; at most {MAXIMUM_KEYS}"
    return f"{channels} channels per head; at most {MAXIMUM_CHANNELS}" if channels > MAXIMUM_CHANNELS else ""


if triton is not None:

    @triton.jit
    def load_rows(X, n, x_n, x_d, N, d, DEEP: tl.constexpr):
        """Some rows (tokens) of the queries or keys of one head; zeros beyond the last one."""
        deep = tl.arange(0, DEEP)
        present = (n[:, None] < N) & (deep[None, :] < d)
        return tl.load(X + n[:, None] * x_n + deep[None, :] * x_d, mask=present, other=0.0)

    @triton.jit
    def logits_of(q, k, beyond, BIAS, n, m, b_n, b_m, N, M, scale, BIASED: tl.constexpr):
        """The logits of some rows in units of log 2; `beyond` is minus infinity for columns beyond the last key."""
        logits = tl.dot(q, tl.trans(k), input_precision="tf32x3") * scale + beyond[None, :]
        if BIASED:
            present = (n[:, None] < N) & (m[None, :] < M)
            bias = tl.load(BIAS + n[:, None] * b_n + m[None, :] * b_m, mask=present, other=0.0)
            logits += bias.to(tl.float32) * 1.4426950408889634
        return logits

    @triton.jit
    def softmax_rows(logits):
        """The weights of some rows, and log2 Σ 2^l of each."""
        top = tl.max(logits, 1)
        e = tl.exp2(logits - top[:, None])
        total = tl.sum(e, 1)
        return e * (1.0 / total)[:, None], top + tl.log2(total)

    @triton.jit
    def terms(weights, threshold, RELEASED: tl.constexpr):
        """The terms of the two sums over some rows of a map."""
        keep = (weights > threshold) if RELEASED else (weights >= threshold)
        kept = tl.where(keep, weights, 0.0)
        inverse = 1.0 / tl.maximum(tl.sqrt(tl.sum(kept * kept, 1)), 1e-8)
        return weights if RELEASED else kept, kept * inverse[:, None]

    @triton.jit
    def map_gradient(weights, d_totals, d_units, threshold, RELEASED: tl.constexpr, KEYS: tl.constexpr = 1):
        """The gradient of some rows of a map from those of its sums; keys are along the axis `KEYS`."""
        keep = (weights > threshold) if RELEASED else (weights >= threshold)
        kept = tl.where(keep, weights, 0.0)
        d_totals, d_units = tl.expand_dims(d_totals, 1 - KEYS), tl.expand_dims(d_units, 1 - KEYS)
        norm = tl.sqrt(tl.sum(kept * kept, KEYS))
        inverse = 1.0 / tl.maximum(norm, 1e-8)
        along = tl.sum(kept * d_units, KEYS) * inverse * inverse * inverse
        along = tl.where(norm > 1e-8, along, 0.0)
        unit = d_units * tl.expand_dims(inverse, KEYS) - kept * tl.expand_dims(along, KEYS)
        if RELEASED:
            return d_totals + tl.where(keep, unit, 0.0)
        return tl.where(keep, d_totals + unit, 0.0)
