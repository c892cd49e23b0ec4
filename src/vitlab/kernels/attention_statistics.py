"""Statistics of attention maps from queries and keys in one streaming pass, in O(N) memory per head.

A program computes some rows of a map, a block of keys at a time. With running maximum m, e = exp(l − m), it accumulates
Σ e, Σ e l, Σ e² and Σ e w, rescaled when the maximum grows, as in FlashAttention:

    entropy = log Σ e + m − Σ e l / Σ e,   norm² = Σ e² / (Σ e)²,   weighted = Σ e w / Σ e

The sums over the rows of a key's weights need the final Σ e: a second walk over the keys. Products run on tensor cores
as three TF32 products, which are as accurate as one in float32.

Shape legend: B batch (windows folded in), H heads, N query tokens, M key tokens, d head channels, T windows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vitlab.kernels.availability import device_guard, transformed, unavailable

try:
    import triton
    import triton.language as tl
except ImportError:  # only CUDA builds of torch include it
    triton = None

OPERATOR = "attention_statistics"
NAMES = ("entropy", "squares", "weighted", "received")


def plain(maps: Tensor, wanted: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Reference implementation, from the maps (B, H, N, M); see `fused`.

    >>> found = plain(torch.full((1, 1, 2, 2), 0.5), {"squares": None, "received": None})
    >>> found["squares"].tolist(), found["received"].tolist()
    ([[[0.5, 0.5]]], [[[1.0, 1.0]]])
    """
    found = {}
    for name, weights in wanted.items():
        if name == "entropy":
            found[name] = torch.special.entr(maps).sum(-1)
        elif name == "squares":
            found[name] = maps.square().sum(-1)
        elif name == "received":
            found[name] = maps.sum(-2)
        elif weights is not None:
            each = maps.unflatten(0, (-1, len(weights))) * weights[:, None]
            found[name] = each.sum(-1).flatten(0, 1)
    return found


def missing(q: Tensor, k: Tensor) -> str:
    """Returns why `fused` does not support these operands, or an empty string."""
    if transformed() or torch.is_grad_enabled():
        return "gradients need plain operations"
    return unsupported(q) or unavailable(OPERATOR, q.device, q.dtype)


def unsupported(q: Tensor) -> str:
    """Returns why queries like these are not supported on any device, or an empty string.

    >>> unsupported(torch.zeros(1, 1, 2, 64)), unsupported(torch.zeros(1, 1, 2, 256))
    ('', '256 channels per head; at most 128')
    """
    return f"{q.shape[-1]} channels per head; at most 128" if q.shape[-1] > 128 else ""


def fused(
    q: Tensor, k: Tensor, scale: float, bias: Tensor | None, wanted: Mapping[str, Tensor | None]
) -> dict[str, Tensor]:
    """Statistics of softmax(q kᵀ · scale + bias) without storing the map.

    Args:
        q: (B, H, N, d).
        k: (B, H, M, d); fewer heads are shared by groups of queries.
        scale: the factor on q kᵀ.
        bias: broadcastable to (B, H, N, M).
        wanted: names of statistics: `entropy`, `squares` and `weighted` (B, H, N), of each row: its entropy in nats,
            its squared norm, and the sum of its entries times a weight; `received` (B, H, M), the sum over rows. The
            value of `weighted` is the weights, (T, N, M), where window t of each image has weights t; others are None.

    Returns:
        The statistics by name, in float32.
    """
    batch, heads, rows, channels = q.shape
    columns = k.shape[2]
    weights = wanted.get("weighted")
    deep = max(16, triton.next_power_of_2(channels))
    tall, wide = (64, 64) if deep <= 64 else (32, 32)
    tiles = triton.cdiv(rows, tall)
    per_row = torch.empty(3, batch, heads, rows, device=q.device)
    received = "received" in wanted
    parts = torch.empty(batch, heads, tiles if received else 1, columns, device=q.device)
    strides = (0, 0, 0, 0) if bias is None else bias.expand(batch, heads, rows, columns).stride()
    with device_guard(q):
        _statistics_kernel[(batch * heads * tiles,)](
            q, k, q if bias is None else bias, per_row if weights is None else weights.float().contiguous(),
            per_row, parts, *q.stride(), *k.stride(), *strides, per_row.stride(0), heads, heads // k.shape[1],
            rows, columns, channels, 1 if weights is None else len(weights), scale,
            BIASED=bias is not None, WEIGHTED=weights is not None, RECEIVED=received,
            TALL=tall, WIDE=wide, DEEP=deep, num_warps=4, num_stages=1,
        )  # fmt: skip
    found = dict(zip(("entropy", "squares", "weighted"), per_row, strict=True))
    if received:
        found["received"] = parts.sum(2)
    return {name: found[name] for name in wanted}


if triton is not None:

    @triton.jit
    def _block_logits(q, K, BIAS, n, m, k_m, k_d, b_n, b_m, N, M, d, BIASED: tl.constexpr, DEEP: tl.constexpr):
        """The logits of some rows and keys; minus infinity beyond the last key."""
        deep = tl.arange(0, DEEP)
        present = (m[None, :] < M) & (deep[:, None] < d)
        k = tl.load(K + m[None, :] * k_m + deep[:, None] * k_d, mask=present, other=0.0).to(tl.float32)
        logits = tl.dot(q, k, input_precision="tf32x3")
        if BIASED:
            present = (n[:, None] < N) & (m[None, :] < M)
            logits += tl.load(BIAS + n[:, None] * b_n + m[None, :] * b_m, mask=present, other=0.0).to(tl.float32)
        return tl.where(m[None, :] < M, logits, -float("inf"))

    @triton.jit
    def _statistics_kernel(
        Q, K, BIAS, WEIGHTS, ROWS, PARTS,
        q_b, q_h, q_n, q_d, k_b, k_h, k_m, k_d, b_b, b_h, b_n, b_m, apart, heads, group, N, M, d, windows, scale,
        BIASED: tl.constexpr, WEIGHTED: tl.constexpr, RECEIVED: tl.constexpr,
        TALL: tl.constexpr, WIDE: tl.constexpr, DEEP: tl.constexpr,
    ) -> None:  # fmt: skip
        """The statistics of some rows of one head."""
        tiles = tl.cdiv(N, TALL)
        map = (tl.program_id(0) // tiles).to(tl.int64)
        tile = tl.program_id(0) % tiles
        image, h = map // heads, map % heads
        n, deep = tile * TALL + tl.arange(0, TALL), tl.arange(0, DEEP)
        place = Q + image * q_b + h * q_h + n[:, None] * q_n + deep[None, :] * q_d
        q = tl.load(place, mask=(n[:, None] < N) & (deep[None, :] < d), other=0.0).to(tl.float32) * scale
        keys, bias = K + image * k_b + h // group * k_h, BIAS + image * b_b + h * b_h
        weights = WEIGHTS + (image % windows) * N * M
        top = tl.full([TALL], -float("inf"), tl.float32)
        total = tl.zeros([TALL], tl.float32)
        mean, square, weighted = total, total, total
        for start in range(0, M, WIDE):
            m = start + tl.arange(0, WIDE)
            logits = _block_logits(q, keys, bias, n, m, k_m, k_d, b_n, b_m, N, M, d, BIASED, DEEP)
            new = tl.maximum(top, tl.max(logits, 1))
            # If every key so far is masked the maximum is -inf, and -inf - (-inf) would be NaN.
            safe = tl.where(new == -float("inf"), 0.0, new)
            shrink = tl.exp(top - safe)
            e = tl.exp(logits - safe[:, None])
            # Sums of e (l - m) instead of e l lose no digits where logits are large.
            moved = tl.where(top == -float("inf"), 0.0, (top - safe) * total)
            mean = (mean + moved) * shrink + tl.sum(tl.where(e > 0.0, e * (logits - safe[:, None]), 0.0), 1)
            total = total * shrink + tl.sum(e, 1)
            square = square * shrink * shrink + tl.sum(e * e, 1)
            if WEIGHTED:
                present = (n[:, None] < N) & (m[None, :] < M)
                w = tl.load(weights + n[:, None] * M + m[None, :], mask=present, other=0.0)
                weighted = weighted * shrink + tl.sum(e * w, 1)
            top = new
        out = ROWS + map * N + n
        tl.store(out, tl.log(total) - mean / total, mask=n < N)
        tl.store(out + apart, square / (total * total), mask=n < N)
        tl.store(out + 2 * apart, weighted / total, mask=n < N)
        if RECEIVED:
            safe = tl.where(top == -float("inf"), 0.0, top) + tl.log(total)
            for start in range(0, M, WIDE):
                m = start + tl.arange(0, WIDE)
                logits = _block_logits(q, keys, bias, n, m, k_m, k_d, b_n, b_m, N, M, d, BIASED, DEEP)
                p = tl.where(n[:, None] < N, tl.exp(logits - safe[:, None]), 0.0)
                tl.store(PARTS + (map * tiles + tile) * M + m, tl.sum(p, 0), mask=m < M)
