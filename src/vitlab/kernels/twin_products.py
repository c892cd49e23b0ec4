"""Inner products between the rows of two attention maps, computed from queries and keys without storing the maps.

The two maps (twins) belong to the two halves of a batch, such as images and their corrupted copies. With logits l and
l' of a row, running maxima m and m', and e = exp(l − m):

    A·A' = Σ e e' / (Σ e Σ e'),   A·A = Σ e² / (Σ e)²,   A'·A' = Σ e'² / (Σ e')²

Five sums per row are accumulated over blocks of keys and rescaled when a maximum grows, as in FlashAttention. The
products q·k run on tensor cores as three TF32 products, which are as accurate as one in float32 (maximum relative error
to float64 2.6e-6 against 3.2e-6, on DeiT-Ti's shapes).

Shape legend: B pairs, H heads, N query tokens, M key tokens, d head channels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitlab.kernels import attention_rows
from vitlab.kernels.availability import device_guard, run, transformed, unavailable

try:
    import triton
    import triton.language as tl
except ImportError:  # only CUDA builds of torch include it
    triton = None

OPERATOR = "twin_products"
_TILES = ((128, 128, 8), (64, 64, 4), (32, 64, 2), (16, 32, 2))  # queries, keys, warps; fastest first


def plain(weights: Tensor) -> Tensor:
    """Reference implementation: the products from the maps, or from some of their rows.

    Args:
        weights: (2B, H, n, M), the two halves of the batch concatenated.

    Returns:
        (3, B, H, n): A·A', A·A and A'·A'.

    >>> both, first, second = plain(torch.stack((torch.eye(2), torch.full((2, 2), 0.5)))[:, None])
    >>> both.sum() / (first.sum() * second.sum()).sqrt()
    tensor(0.7071)
    """
    first, second = weights.chunk(2)
    squares = torch.linalg.vector_norm(weights, dim=-1).square()
    with torch.autocast(weights.device.type, enabled=False):  # it would compute the product in bf16
        both = torch.linalg.vecdot(first, second)
    return torch.stack((both, *squares.chunk(2)))


def missing(q: Tensor) -> str:
    """Returns why `fused` does not support these queries, or an empty string."""
    if transformed() or torch.is_grad_enabled():
        return "gradients need plain operations"
    return unsupported(q) or unavailable(OPERATOR, q.device, q.dtype)


def unsupported(q: Tensor) -> str:
    """Returns why queries like these are not supported on any device, or an empty string.

    >>> unsupported(torch.zeros(1, 1, 2, 256)), unsupported(torch.zeros(1, 1, 2, 512))
    ('', '512 channels per head; at most 256')
    """
    return f"{q.shape[-1]} channels per head; at most 256" if q.shape[-1] > 256 else ""


def fused(q: Tensor, k: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
    """`plain(softmax(q kᵀ · scale + bias))` without storing the map.

    Args:
        q: (2B, H, N, d).
        k: (2B, H, M, d); fewer heads are shared by groups of queries.
        scale: the factor on q kᵀ.
        bias: broadcastable to (2B, H, N, M).

    Returns:
        (3, B, H, N) in float32.
    """
    found: Tensor = products(q, k, bias, scale)
    return found


@torch.library.custom_op("vitlab::twin_products", mutates_args=())
def products(q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """The registered operator, without gradients: the result of `fused`, (3, B, H, N)."""
    return run(OPERATOR, lambda: _by_kernel(q, k, bias, scale), lambda: _by_rows(q, k, bias, scale))


@products.register_fake
def _(q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    return _output(q)


def _output(q: Tensor) -> Tensor:
    """An empty tensor for the result of `products`."""
    twice, heads, rows, _ = q.shape
    return q.new_empty(3, twice // 2, heads, rows, dtype=torch.float32)


def _by_rows(q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """The result of `products` in plain torch, some rows at a time."""
    output = _output(q)
    for place, weights in attention_rows.rows(q, k, scale, bias):
        output[..., place] = plain(weights)
        del weights  # free it before the next chunk is computed
    return output


def _by_kernel(q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    twice, heads, rows, channels = q.shape
    columns = k.shape[-2]
    output = _output(q)
    if bias is not None:
        bias = bias.expand(twice, heads, rows, columns)
    deep = max(16, triton.next_power_of_2(channels))
    tiles = _TILES[0 if rows > 64 else 1 :]
    for tall, wide, warps in tiles:
        grid = (twice // 2 * heads * triton.cdiv(rows, tall),)
        try:
            with device_guard(q):
                _products_kernel[grid](
                    q, k, q if bias is None else bias, output,
                    *q.stride(), *k.stride(), *((0, 0, 0, 0) if bias is None else bias.stride()),
                    output.stride(0), twice // 2, heads, heads // k.shape[1], rows, columns, channels, scale,
                    BIASED=bias is not None, TALL=tall, WIDE=wide, DEEP=deep, num_warps=warps, num_stages=1,
                )  # fmt: skip
            break
        except triton.runtime.errors.OutOfResources:  # less shared memory, or more channels
            if tall == tiles[-1][0]:
                raise
    return output


if triton is not None:

    @triton.jit
    def _products_kernel(
        Q, K, BIAS, OUT,
        q_b, q_h, q_n, q_d, k_b, k_h, k_m, k_d, b_b, b_h, b_n, b_m,
        apart, pairs, heads, group, N, M, d, scale,
        BIASED: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, DEEP: tl.constexpr,
    ) -> None:  # fmt: skip
        """Compute some rows of one head of one pair."""
        blocks = tl.cdiv(N, TALL)
        map = tl.program_id(0) // blocks
        first, h = (map // heads).to(tl.int64), (map % heads).to(tl.int64)
        second = first + pairs
        rows = (tl.program_id(0) % blocks).to(tl.int64) * TALL + tl.arange(0, TALL)
        deep = tl.arange(0, DEEP)
        given = (rows[:, None] < N) & (deep[None, :] < d)
        at_q = h * q_h + rows[:, None] * q_n + deep[None, :] * q_d
        q = tl.load(Q + first * q_b + at_q, mask=given, other=0.0).to(tl.float32) * scale
        q_ = tl.load(Q + second * q_b + at_q, mask=given, other=0.0).to(tl.float32) * scale
        top = tl.full([TALL], -float("inf"), tl.float32)
        top_ = top
        sum = tl.zeros([TALL], tl.float32)
        sum_, both, square, square_ = sum, sum, sum, sum
        for start in range(0, M, WIDE):
            columns = start + tl.arange(0, WIDE)
            real = columns[None, :] < M
            at_k = h // group * k_h + columns[None, :] * k_m + deep[:, None] * k_d
            seen = real & (deep[:, None] < d)
            k = tl.load(K + first * k_b + at_k, mask=seen, other=0.0).to(tl.float32)
            k_ = tl.load(K + second * k_b + at_k, mask=seen, other=0.0).to(tl.float32)
            logits = tl.dot(q, k, input_precision="tf32x3")
            logits_ = tl.dot(q_, k_, input_precision="tf32x3")
            if BIASED:
                at_b = h * b_h + rows[:, None] * b_n + columns[None, :] * b_m
                lies = (rows[:, None] < N) & real
                logits += tl.load(BIAS + first * b_b + at_b, mask=lies, other=0.0).to(tl.float32)
                logits_ += tl.load(BIAS + second * b_b + at_b, mask=lies, other=0.0).to(tl.float32)
            logits = tl.where(real, logits, -float("inf"))
            logits_ = tl.where(real, logits_, -float("inf"))
            new, new_ = tl.maximum(top, tl.max(logits, 1)), tl.maximum(top_, tl.max(logits_, 1))
            # If every key so far is masked the maximum is -inf, and -inf - (-inf) would be NaN.
            safe, safe_ = tl.where(new == -float("inf"), 0.0, new), tl.where(new_ == -float("inf"), 0.0, new_)
            shrink, shrink_ = tl.exp(top - safe), tl.exp(top_ - safe_)
            e, e_ = tl.exp(logits - safe[:, None]), tl.exp(logits_ - safe_[:, None])
            sum, sum_ = sum * shrink + tl.sum(e, 1), sum_ * shrink_ + tl.sum(e_, 1)
            both = both * shrink * shrink_ + tl.sum(e * e_, 1)
            square = square * shrink * shrink + tl.sum(e * e, 1)
            square_ = square_ * shrink_ * shrink_ + tl.sum(e_ * e_, 1)
            top, top_ = new, new_
        out = OUT + map.to(tl.int64) * N + rows
        tl.store(out, both / (sum * sum_), mask=rows < N)
        tl.store(out + apart, square / (sum * sum), mask=rows < N)
        tl.store(out + 2 * apart, square_ / (sum_ * sum_), mask=rows < N)
