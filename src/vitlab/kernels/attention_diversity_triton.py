"""Sums over the rows of attention maps for the diversification loss, from queries and keys, on GPUs.

A program computes some rows of a map, all columns at once (at most `MAXIMUM_KEYS`), and recomputes them in the backward
pass: no map is stored. If heads are averaged, a first backward kernel writes the gradient of the averaged map,
(B, N, M) in the precision of the queries, which a second one reads for each head; it is freed at the end of the layer's
backward. Computing it again for each head would need H times the products.

Shape legend: B batch, H heads, N queries, M keys, d head channels, G maps: B, or B·H if heads are not averaged.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vitlab.kernels import attention_diversity_plain as plain
from vitlab.kernels.availability import device_guard, run

try:
    import triton
    import triton.language as tl
except ImportError:  # only CUDA builds of torch include it
    triton = None

OPERATOR = "attention_diversity"
MAXIMUM_KEYS = 256
MAXIMUM_CHANNELS = 64
_LOG2_E = 1.4426950408889634


@torch.library.custom_op("vitlab::attention_row_sums", mutates_args=())
def row_sums(
    q: Tensor, k: Tensor, bias: Tensor | None, scale: float, threshold: float, released: bool, averaged: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The registered operator: the two sums (G, M) of `plain.row_sums`, and log2 Σ exp of each row, (B, H, N)."""

    def without_kernel() -> tuple[Tensor, Tensor, Tensor]:
        totals, units = plain.row_sums(q, k, bias, scale, threshold, released, averaged)
        return totals, units, torch.zeros(q.shape[:3], device=q.device)  # the plain backward does not use it

    return run(OPERATOR, lambda: _forward(q, k, bias, scale, threshold, released, averaged), without_kernel)


@torch.library.custom_op("vitlab::attention_row_sums_backward", mutates_args=())
def row_sums_backward(
    d_totals: Tensor,
    d_units: Tensor,
    q: Tensor,
    k: Tensor,
    bias: Tensor | None,
    sums: Tensor,
    scale: float,
    threshold: float,
    released: bool,
    averaged: bool,
) -> tuple[Tensor, Tensor]:
    """The gradients of q and k."""
    settings = (scale, threshold, released, averaged)

    def without_kernel() -> tuple[Tensor, Tensor]:
        dq, dk = plain.row_sums_backward(d_totals, d_units, q, k, bias, *settings)
        return _empty_heads(q).copy_(dq), _empty_heads(k).copy_(dk)  # a compiled graph relies on the memory order

    return run(OPERATOR, lambda: _backward(d_totals, d_units, q, k, bias, sums, *settings), without_kernel)


@row_sums.register_fake
def _(
    q: Tensor, k: Tensor, bias: Tensor | None, scale: float, threshold: float, released: bool, averaged: bool
) -> tuple[Tensor, Tensor, Tensor]:
    maps = q.shape[0] if averaged else q.shape[0] * q.shape[1]
    sums = [q.new_empty(maps, k.shape[2], dtype=torch.float32) for _ in range(2)]
    return sums[0], sums[1], q.new_empty(q.shape[:3], dtype=torch.float32)


@row_sums_backward.register_fake
def _(
    d_totals: Tensor,
    d_units: Tensor,
    q: Tensor,
    k: Tensor,
    bias: Tensor | None,
    sums: Tensor,
    scale: float,
    threshold: float,
    released: bool,
    averaged: bool,
) -> tuple[Tensor, Tensor]:
    return _empty_heads(q), _empty_heads(k)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, bias, *settings = inputs
    ctx.save_for_backward(q, k, bias, output[2])
    ctx.settings = tuple(settings)


def _differentiate(ctx: Any, d_totals: Tensor, d_units: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    q, k, bias, sums = ctx.saved_tensors
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # second derivatives use plain operations
        gradients = plain.row_sums_backward(d_totals, d_units, q, k, bias, *ctx.settings)
    else:
        gradients = row_sums_backward(d_totals, d_units, q, k, bias, sums, *ctx.settings)
    return *gradients, None, None, None, None, None


row_sums.register_autograd(_differentiate, setup_context=_save)


def _empty_heads(x: Tensor) -> Tensor:
    """An empty tensor (B, H, N, d) in the memory order (B, N, H, d), that of the projection of queries and keys."""
    batch, heads, count, channels = x.shape
    return x.new_empty(batch, count, heads, channels).transpose(1, 2)


def _forward(
    q: Tensor, k: Tensor, bias: Tensor | None, scale: float, threshold: float, released: bool, averaged: bool
) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, rows, _ = q.shape
    maps, columns = batch if averaged else batch * heads, k.shape[2]
    constants = _constants(q, k, bias, released, averaged)
    tiles = triton.cdiv(rows, constants["ROWS"])
    parts = torch.empty(maps, tiles, 2, constants["COLUMNS"], device=q.device)
    sums = torch.empty(batch, heads, rows, device=q.device)
    with device_guard(q):
        _sums_kernel[(maps * tiles,)](
            q, k, q if bias is None else bias, parts, sums, *q.stride(), *k.stride(), *_bias_strides(q, k, bias),
            heads, rows, columns, q.shape[-1], scale * _LOG2_E, threshold, **constants,
        )  # fmt: skip
    return parts[:, :, 0, :columns].sum(1), parts[:, :, 1, :columns].sum(1), sums


def _backward(
    d_totals: Tensor, d_units: Tensor, q: Tensor, k: Tensor, bias: Tensor | None, sums: Tensor,
    scale: float, threshold: float, released: bool, averaged: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    batch, heads, rows, channels = q.shape
    columns = k.shape[2]
    d_totals, d_units = d_totals.float().contiguous(), d_units.float().contiguous()
    dq, dk = _empty_heads(q), _empty_heads(k)
    constants = _constants(q, k, bias, released, averaged)
    operands = (q, k, q if bias is None else bias, d_totals, d_units, sums)
    strides = (*q.stride(), *k.stride(), *_bias_strides(q, k, bias))
    sizes = (heads, rows, columns, channels, scale * _LOG2_E, threshold)
    scratch = d_totals
    with device_guard(q):
        if averaged:
            dtype = torch.bfloat16 if q.dtype == torch.bfloat16 else torch.float32
            scratch = torch.empty(batch, rows, constants["COLUMNS"], dtype=dtype, device=q.device)
            _map_gradient_kernel[(batch * triton.cdiv(rows, constants["ROWS"]),)](
                *operands, scratch, *strides, *sizes, **constants
            )
        if constants["COLUMNS"] > 128:
            constants["ROWS"] = 32  # the gradient of the keys needs registers
        _operand_gradient_kernel[(batch * heads,)](
            *operands, scratch, dq, dk, *strides, *dq.stride()[:3], *dk.stride()[:3], *sizes, scale, **constants
        )
    return dq, dk


def _bias_strides(q: Tensor, k: Tensor, bias: Tensor | None) -> tuple[int, ...]:
    return (0, 0, 0, 0) if bias is None else bias.expand(*q.shape[:3], k.shape[2]).stride()


def _constants(q: Tensor, k: Tensor, bias: Tensor | None, released: bool, averaged: bool) -> dict[str, Any]:
    columns = max(16, triton.next_power_of_2(k.shape[2]))
    rows = 32 if columns > 128 and q.dtype == torch.float32 else 64
    return {
        "BIASED": bias is not None,
        "RELEASED": released,
        "AVERAGED": averaged,
        "ROWS": min(rows, max(16, triton.next_power_of_2(q.shape[2]))),
        "COLUMNS": columns,
        "DEEP": max(16, triton.next_power_of_2(q.shape[3])),
        "num_warps": 8 if columns > 64 else 4,
        "num_stages": 1,
    }


if triton is not None:

    @triton.jit
    def _logits(
        Q, K, BIAS, n, m, q_n, q_d, k_m, k_d, b_n, b_m, N, M, d, scale, BIASED: tl.constexpr, DEEP: tl.constexpr
    ):
        """The logits of some rows of one head in units of log 2; minus infinity at columns beyond the last key."""
        deep = tl.arange(0, DEEP)
        q = tl.load(Q + n[:, None] * q_n + deep[None, :] * q_d, mask=(n[:, None] < N) & (deep[None, :] < d), other=0.0)
        k = tl.load(K + m[None, :] * k_m + deep[:, None] * k_d, mask=(m[None, :] < M) & (deep[:, None] < d), other=0.0)
        logits = tl.dot(q, k, input_precision="tf32x3") * scale
        if BIASED:
            present = (n[:, None] < N) & (m[None, :] < M)
            bias = tl.load(BIAS + n[:, None] * b_n + m[None, :] * b_m, mask=present, other=0.0)
            logits += bias.to(tl.float32) * 1.4426950408889634
        return tl.where(m[None, :] < M, logits, -float("inf"))

    @triton.jit
    def _sums_kernel(
        Q, K, BIAS, PARTS, SUMS,
        q_b, q_h, q_n, q_d, k_b, k_h, k_m, k_d, b_b, b_h, b_n, b_m, heads, N, M, d, scale, threshold,
        BIASED: tl.constexpr, RELEASED: tl.constexpr, AVERAGED: tl.constexpr,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr,
    ) -> None:  # fmt: skip
        """The sums over some rows of one map; also log2 Σ 2^l of its rows in each head."""
        tiles = tl.cdiv(N, ROWS)
        map = tl.program_id(0) // tiles
        tile = tl.program_id(0) % tiles
        image, first, count = map, 0, heads
        if not AVERAGED:
            image, first, count = map // heads, map % heads, 1
        image = image.to(tl.int64)
        n, m = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
        weights = tl.zeros([ROWS, COLUMNS], tl.float32)
        for h in range(first, first + count):
            logits = _logits(
                Q + image * q_b + h * q_h, K + image * k_b + h * k_h, BIAS + image * b_b + h * b_h, n, m,
                q_n, q_d, k_m, k_d, b_n, b_m, N, M, d, scale, BIASED, DEEP,
            )  # fmt: skip
            top = tl.max(logits, 1)
            e = tl.exp2(logits - top[:, None])
            total = tl.sum(e, 1)
            weights += e / total[:, None]
            tl.store(SUMS + (image * heads + h) * N + n, top + tl.log2(total), mask=n < N)
        weights = tl.where(n[:, None] < N, weights / count, 0.0)
        if RELEASED:
            kept = tl.where(weights > threshold, weights, 0.0)
            totals = tl.sum(weights, 0)
        else:
            kept = tl.where(weights >= threshold, weights, 0.0)
            totals = tl.sum(kept, 0)
        norm = tl.sqrt(tl.sum(kept * kept, 1))
        units = tl.sum(kept / tl.maximum(norm, 1e-8)[:, None], 0)
        place = PARTS + (map.to(tl.int64) * tiles + tile) * 2 * COLUMNS + m
        tl.store(place, totals)
        tl.store(place + COLUMNS, units)

    @triton.jit
    def _map_gradient(weights, d_totals, d_units, threshold, RELEASED: tl.constexpr):
        """The gradient of some rows of a map from those of its sums."""
        keep = (weights > threshold) if RELEASED else (weights >= threshold)
        kept = tl.where(keep, weights, 0.0)
        norm = tl.sqrt(tl.sum(kept * kept, 1))
        inverse = 1.0 / tl.maximum(norm, 1e-8)
        along = tl.sum(kept * d_units[None, :], 1) * inverse * inverse * inverse
        along = tl.where(norm > 1e-8, along, 0.0)
        unit = d_units[None, :] * inverse[:, None] - kept * along[:, None]
        if RELEASED:
            return d_totals[None, :] + tl.where(keep, unit, 0.0)
        return tl.where(keep, d_totals[None, :] + unit, 0.0)

    @triton.jit
    def _map_gradient_kernel(
        Q, K, BIAS, D_TOTALS, D_UNITS, SUMS, SCRATCH,
        q_b, q_h, q_n, q_d, k_b, k_h, k_m, k_d, b_b, b_h, b_n, b_m, heads, N, M, d, scale, threshold,
        BIASED: tl.constexpr, RELEASED: tl.constexpr, AVERAGED: tl.constexpr,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr,
    ) -> None:  # fmt: skip
        """The gradient of some rows of the head-averaged map, divided by the number of heads."""
        tiles = tl.cdiv(N, ROWS)
        image = (tl.program_id(0) // tiles).to(tl.int64)
        n, m = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
        weights = tl.zeros([ROWS, COLUMNS], tl.float32)
        for h in range(0, heads):
            logits = _logits(
                Q + image * q_b + h * q_h, K + image * k_b + h * k_h, BIAS + image * b_b + h * b_h, n, m,
                q_n, q_d, k_m, k_d, b_n, b_m, N, M, d, scale, BIASED, DEEP,
            )  # fmt: skip
            sums = tl.load(SUMS + (image * heads + h) * N + n, mask=n < N, other=0.0)
            weights += tl.exp2(logits - sums[:, None])
        d_totals = tl.load(D_TOTALS + image * M + m, mask=m < M, other=0.0)
        d_units = tl.load(D_UNITS + image * M + m, mask=m < M, other=0.0)
        gradient = _map_gradient(weights / heads, d_totals, d_units, threshold, RELEASED) / heads
        place = SCRATCH + (image * N + n[:, None]) * COLUMNS + m[None, :]
        tl.store(place, gradient.to(SCRATCH.dtype.element_ty), mask=n[:, None] < N)

    @triton.jit
    def _operand_gradient_kernel(
        Q, K, BIAS, D_TOTALS, D_UNITS, SUMS, SCRATCH, DQ, DK,
        q_b, q_h, q_n, q_d, k_b, k_h, k_m, k_d, b_b, b_h, b_n, b_m,
        dq_b, dq_h, dq_n, dk_b, dk_h, dk_m, heads, N, M, d, scale, threshold, factor,
        BIASED: tl.constexpr, RELEASED: tl.constexpr, AVERAGED: tl.constexpr,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr,
    ) -> None:  # fmt: skip
        """The gradients of the queries and keys of one head."""
        image, h = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
        m, deep = tl.arange(0, COLUMNS), tl.arange(0, DEEP)
        own = m[:, None] < M
        k = tl.load(
            K + image * k_b + h * k_h + m[:, None] * k_m + deep[None, :] * k_d,
            mask=own & (deep[None, :] < d), other=0.0,
        )  # fmt: skip
        dk = tl.zeros([COLUMNS, DEEP], tl.float32)
        for start in range(0, N, ROWS):
            n = start + tl.arange(0, ROWS)
            logits = _logits(
                Q + image * q_b + h * q_h, K + image * k_b + h * k_h, BIAS + image * b_b + h * b_h, n, m,
                q_n, q_d, k_m, k_d, b_n, b_m, N, M, d, scale, BIASED, DEEP,
            )  # fmt: skip
            sums = tl.load(SUMS + (image * heads + h) * N + n, mask=n < N, other=0.0)
            weights = tl.exp2(logits - sums[:, None])
            if AVERAGED:
                place = SCRATCH + (image * N + n[:, None]) * COLUMNS + m[None, :]
                gradient = tl.load(place, mask=n[:, None] < N, other=0.0).to(tl.float32)
            else:
                d_totals = tl.load(D_TOTALS + (image * heads + h) * M + m, mask=m < M, other=0.0)
                d_units = tl.load(D_UNITS + (image * heads + h) * M + m, mask=m < M, other=0.0)
                gradient = _map_gradient(weights, d_totals, d_units, threshold, RELEASED)
            d_logits = weights * (gradient - tl.sum(weights * gradient, 1)[:, None])
            d_logits = tl.where(n[:, None] < N, d_logits * factor, 0.0).to(k.dtype)
            present = (n[:, None] < N) & (deep[None, :] < d)
            dq = tl.dot(d_logits, k, input_precision="tf32x3")
            place = DQ + image * dq_b + h * dq_h + n[:, None] * dq_n + deep[None, :]
            tl.store(place, dq.to(DQ.dtype.element_ty), mask=present)
            q = tl.load(Q + image * q_b + h * q_h + n[:, None] * q_n + deep[None, :] * q_d, mask=present, other=0.0)
            dk += tl.dot(tl.trans(d_logits), q, input_precision="tf32x3")
        place = DK + image * dk_b + h * dk_h + m[:, None] * dk_m + deep[None, :]
        tl.store(place, dk.to(DK.dtype.element_ty), mask=own & (deep[None, :] < d))
