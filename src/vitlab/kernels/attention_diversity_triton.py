"""Sums over the rows of attention maps for the diversification loss, from queries and keys, on GPUs.

A program computes some rows of a map, all columns at once, and recomputes them in the backward pass: no map is stored.
Programs of one head walk over all its rows and load its keys once. If heads are averaged, a first backward kernel
writes the gradient of the averaged map, (B, N, M) in the precision of the queries, which a second one reads for each
head; it is freed at the end of the layer's backward. Computing it again for each head would need H times the products.

Shape legend: B batch, H heads, N queries, M keys, d head channels, G maps: B, or B·H if heads are not averaged.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vitlab.kernels import attention_diversity_plain as plain
from vitlab.kernels import attention_tiles as tiles
from vitlab.kernels.availability import device_guard, run

try:
    import triton
    import triton.language as tl
except ImportError:  # only CUDA builds of torch include it
    triton = None

OPERATOR = "attention_diversity"

#: Rows and warps of one program for maps of more than 128 keys in 16 bits, the fastest on an H200.
_WIDE_TILES = {
    "sums": (32, 4),
    "head sums": (16, 4),
    "map gradient": (32, 4),
    "operand gradient": (16, 4),
}


@torch.library.custom_op("vitlab::attention_row_sums", mutates_args=())
def row_sums(
    q: Tensor, k: Tensor, bias: Tensor | None, scale: float, threshold: float, released: bool, averaged: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The registered operator: the two sums (G, M) of `plain.row_sums`, and log2 Σ exp of each row, (B, H, N)."""

    def without_kernel() -> tuple[Tensor, Tensor, Tensor]:
        totals, units = plain.row_sums(q, k, bias, scale, threshold, released, averaged)
        unused = tiles.empty_sums(*q.shape[:3], like=q).zero_()  # the plain backward does not use it
        return totals, units, unused

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
        # A compiled graph relies on the memory order.
        return tiles.empty_heads(q).copy_(dq), tiles.empty_heads(k).copy_(dk)

    return run(OPERATOR, lambda: _backward(d_totals, d_units, q, k, bias, sums, *settings), without_kernel)


@row_sums.register_fake
def _(
    q: Tensor, k: Tensor, bias: Tensor | None, scale: float, threshold: float, released: bool, averaged: bool
) -> tuple[Tensor, Tensor, Tensor]:
    maps = q.shape[0] if averaged else q.shape[0] * q.shape[1]
    totals, units = (tiles.empty_sums(maps, k.shape[2], like=q) for _ in range(2))
    return totals, units, tiles.empty_sums(*q.shape[:3], like=q)


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
    return tiles.empty_heads(q), tiles.empty_heads(k)


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


def _forward(
    q: Tensor, k: Tensor, bias: Tensor | None, scale: float, threshold: float, released: bool, averaged: bool
) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, rows, channels = q.shape
    if averaged:
        return averaged_sums(q, k, bias, None, scale, threshold, released)
    constants, columns = {**tiles.constants(q, k, bias), "RELEASED": released}, k.shape[2]
    sums = tiles.empty_sums(batch, heads, rows, like=q)
    totals, units = (tiles.empty_sums(batch * heads, columns, like=q) for _ in range(2))
    with device_guard(q):
        _head_sums_kernel[(batch * heads,)](
            q, k, q if bias is None else bias, totals, units, sums,
            *q.stride(), *k.stride(), *tiles.bias_strides(q, k, bias),
            heads, rows, columns, channels, scale * tiles.LOG2_E, threshold, **constants, **_tile("head sums", q, k),
        )  # fmt: skip
    return totals, units, sums


def averaged_sums(
    q: Tensor, k: Tensor, bias: Tensor | None, sums: Tensor | None, scale: float, threshold: float, released: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The results of `row_sums` for head-averaged maps; `sums` is log2 Σ exp of each row, (B, H, N), if it is known."""
    batch, heads, rows, channels = q.shape
    columns = k.shape[2]
    constants, tile = {**tiles.constants(q, k, bias), "RELEASED": released}, _tile("sums", q, k)
    count, given = triton.cdiv(rows, tile["ROWS"]), sums is not None
    sums = tiles.empty_sums(batch, heads, rows, like=q) if sums is None else sums
    parts = tiles.empty_sums(batch, count, 2, constants["COLUMNS"], like=q)
    with device_guard(q):
        _averaged_sums_kernel[(batch * count,)](
            q, k, q if bias is None else bias, parts, sums,
            *q.stride(), *k.stride(), *tiles.bias_strides(q, k, bias),
            heads, rows, columns, channels, scale * tiles.LOG2_E, threshold, GIVEN=given, **constants, **tile,
        )  # fmt: skip
    return parts[:, :, 0, :columns].sum(1), parts[:, :, 1, :columns].sum(1), sums


def _backward(
    d_totals: Tensor, d_units: Tensor, q: Tensor, k: Tensor, bias: Tensor | None, sums: Tensor,
    scale: float, threshold: float, released: bool, averaged: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    batch, heads, rows, channels = q.shape
    columns = k.shape[2]
    d_totals, d_units = d_totals.float().contiguous(), d_units.float().contiguous()
    dq, dk = tiles.empty_heads(q), tiles.empty_heads(k)
    constants = {**tiles.constants(q, k, bias), "RELEASED": released}
    operands = (q, k, q if bias is None else bias, d_totals, d_units, sums)
    strides = (*q.stride(), *k.stride(), *tiles.bias_strides(q, k, bias))
    sizes = (heads, rows, columns, channels, scale * tiles.LOG2_E, threshold)
    shared = d_totals  # not read
    if averaged:
        shared = map_gradients(d_totals, d_units, q, k, bias, sums, scale, threshold, released)
    with device_guard(q):
        _operand_gradient_kernel[(batch * heads,)](
            *operands, shared, dq, dk, *strides, *dq.stride()[:3], *dk.stride()[:3], *sizes, scale,
            AVERAGED=averaged, **constants, **_tile("operand gradient", q, k),
        )  # fmt: skip
    return dq, dk


def map_gradients(
    d_totals: Tensor, d_units: Tensor, q: Tensor, k: Tensor, bias: Tensor | None, sums: Tensor,
    scale: float, threshold: float, released: bool,
) -> Tensor:  # fmt: skip
    """The gradient of the head-averaged maps divided by the number of heads, (B, N, M or more), from that of its sums.

    Args:
        d_totals, d_units: (B, M) each, contiguous, in float32.
        q, k, bias, scale, threshold, released: as in `row_sums`.
        sums: log2 Σ exp of each row, (B, H, N).
    """
    batch, heads, rows, channels = q.shape
    constants, tile = {**tiles.constants(q, k, bias), "RELEASED": released}, _tile("map gradient", q, k)
    dtype = torch.bfloat16 if q.dtype == torch.bfloat16 else torch.float32
    gradient = torch.empty(batch, rows, constants["COLUMNS"], dtype=dtype, device=q.device)
    with device_guard(q):
        _map_gradient_kernel[(batch * triton.cdiv(rows, tile["ROWS"]),)](
            q, k, q if bias is None else bias, d_totals, d_units, sums, gradient,
            *q.stride(), *k.stride(), *tiles.bias_strides(q, k, bias),
            heads, rows, k.shape[2], channels, scale * tiles.LOG2_E, threshold, **constants, **tile,
        )  # fmt: skip
    return gradient


def _tile(kernel: str, q: Tensor, k: Tensor) -> dict[str, int]:
    """The number of rows of one program, and its warps and stages."""
    wide, single = k.shape[2] > 128, q.dtype == torch.float32
    rows, warps = _WIDE_TILES[kernel] if wide and not single else (16 if wide and "operand" in kernel else 32, 4)
    rows = min(rows, max(16, triton.next_power_of_2(q.shape[2])))
    return {"ROWS": rows, "num_warps": warps, "num_stages": 1 if single or kernel == "head sums" else 2}


if triton is not None:

    @triton.jit
    def _averaged_sums_kernel(
        Q, K, BIAS, PARTS, SUMS,
        q_b, q_h, q_n, q_d, k_b, k_h, k_m, k_d, b_b, b_h, b_n, b_m, heads, N, M, d, scale, threshold,
        BIASED: tl.constexpr, RELEASED: tl.constexpr, GIVEN: tl.constexpr,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr,
    ) -> None:  # fmt: skip
        """The sums over some rows of the head-averaged map of one image.

        log2 Σ 2^l of its rows in each head is read from `SUMS` if it is `GIVEN`, else written to it.
        """
        count = tl.cdiv(N, ROWS)
        image, tile = (tl.program_id(0) // count).to(tl.int64), tl.program_id(0) % count
        n, m = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
        beyond = tl.where(m < M, 0.0, -float("inf"))
        weights = tl.zeros([ROWS, COLUMNS], tl.float32)
        for h in range(0, heads):
            q = tiles.load_rows(Q + image * q_b + h * q_h, n, q_n, q_d, N, d, DEEP)
            k = tiles.load_rows(K + image * k_b + h * k_h, m, k_m, k_d, M, d, DEEP)
            bias = BIAS + image * b_b + h * b_h
            logits = tiles.logits_of(q, k, beyond, bias, n, m, b_n, b_m, N, M, scale, BIASED)
            if GIVEN:
                sums = tl.load(SUMS + (image * heads + h) * N + n, mask=n < N, other=0.0)
                weights += tl.exp2(logits - sums[:, None])
            else:
                own, sums = tiles.softmax_rows(logits)
                weights += own
                tl.store(SUMS + (image * heads + h) * N + n, sums, mask=n < N)
        weights = weights * tl.where(n < N, 1.0 / heads, 0.0)[:, None]
        totals, units = tiles.terms(weights, threshold, RELEASED)
        place = PARTS + (image * count + tile) * 2 * COLUMNS + m
        tl.store(place, tl.sum(totals, 0))
        tl.store(place + COLUMNS, tl.sum(units, 0))

    @triton.jit
    def _head_sums_kernel(
        Q, K, BIAS, TOTALS, UNITS, SUMS,
        q_b, q_h, q_n, q_d, k_b, k_h, k_m, k_d, b_b, b_h, b_n, b_m, heads, N, M, d, scale, threshold,
        BIASED: tl.constexpr, RELEASED: tl.constexpr,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr,
    ) -> None:  # fmt: skip
        """The sums over all rows of the map of one head, whose keys are loaded once; also log2 Σ 2^l of its rows."""
        map = tl.program_id(0).to(tl.int64)
        image, h = map // heads, map % heads
        m = tl.arange(0, COLUMNS)
        beyond = tl.where(m < M, 0.0, -float("inf"))
        k = tiles.load_rows(K + image * k_b + h * k_h, m, k_m, k_d, M, d, DEEP)
        totals, units = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
        for start in range(0, N, ROWS):
            n = start + tl.arange(0, ROWS)
            q = tiles.load_rows(Q + image * q_b + h * q_h, n, q_n, q_d, N, d, DEEP)
            bias = BIAS + image * b_b + h * b_h
            weights, sums = tiles.softmax_rows(tiles.logits_of(q, k, beyond, bias, n, m, b_n, b_m, N, M, scale, BIASED))
            tl.store(SUMS + map * N + n, sums, mask=n < N)
            more, others = tiles.terms(tl.where(n[:, None] < N, weights, 0.0), threshold, RELEASED)
            totals += more
            units += others
        tl.store(TOTALS + map * M + m, tl.sum(totals, 0), mask=m < M)
        tl.store(UNITS + map * M + m, tl.sum(units, 0), mask=m < M)

    @triton.jit
    def _map_gradient_kernel(
        Q, K, BIAS, D_TOTALS, D_UNITS, SUMS, SCRATCH,
        q_b, q_h, q_n, q_d, k_b, k_h, k_m, k_d, b_b, b_h, b_n, b_m, heads, N, M, d, scale, threshold,
        BIASED: tl.constexpr, RELEASED: tl.constexpr,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr,
    ) -> None:  # fmt: skip
        """The gradient of some rows of the head-averaged map, divided by the number of heads."""
        count = tl.cdiv(N, ROWS)
        image = (tl.program_id(0) // count).to(tl.int64)
        n, m = (tl.program_id(0) % count) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
        beyond = tl.where(m < M, 0.0, -float("inf"))
        weights = tl.zeros([ROWS, COLUMNS], tl.float32)
        for h in range(0, heads):
            q = tiles.load_rows(Q + image * q_b + h * q_h, n, q_n, q_d, N, d, DEEP)
            k = tiles.load_rows(K + image * k_b + h * k_h, m, k_m, k_d, M, d, DEEP)
            logits = tiles.logits_of(q, k, beyond, BIAS + image * b_b + h * b_h, n, m, b_n, b_m, N, M, scale, BIASED)
            sums = tl.load(SUMS + (image * heads + h) * N + n, mask=n < N, other=0.0)
            weights += tl.exp2(logits - sums[:, None])
        d_totals = tl.load(D_TOTALS + image * M + m, mask=m < M, other=0.0)
        d_units = tl.load(D_UNITS + image * M + m, mask=m < M, other=0.0)
        gradient = tiles.map_gradient(weights * (1.0 / heads), d_totals, d_units, threshold, RELEASED) * (1.0 / heads)
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
        """The gradients of the queries and keys of one head, whose keys are loaded once."""
        map = tl.program_id(0).to(tl.int64)
        image, h = map // heads, map % heads
        m, deep = tl.arange(0, COLUMNS), tl.arange(0, DEEP)
        beyond = tl.where(m < M, 0.0, -float("inf"))
        k = tiles.load_rows(K + image * k_b + h * k_h, m, k_m, k_d, M, d, DEEP)
        dk = tl.zeros([COLUMNS, DEEP], tl.float32)
        for start in range(0, N, ROWS):
            n = start + tl.arange(0, ROWS)
            q = tiles.load_rows(Q + image * q_b + h * q_h, n, q_n, q_d, N, d, DEEP)
            logits = tiles.logits_of(q, k, beyond, BIAS + image * b_b + h * b_h, n, m, b_n, b_m, N, M, scale, BIASED)
            sums = tl.load(SUMS + map * N + n, mask=n < N, other=0.0)
            weights = tl.exp2(logits - sums[:, None])
            if AVERAGED:
                place = SCRATCH + (image * N + n[:, None]) * COLUMNS + m[None, :]
                gradient = tl.load(place, mask=n[:, None] < N, other=0.0).to(tl.float32)
            else:
                d_totals = tl.load(D_TOTALS + map * M + m, mask=m < M, other=0.0)
                d_units = tl.load(D_UNITS + map * M + m, mask=m < M, other=0.0)
                gradient = tiles.map_gradient(weights, d_totals, d_units, threshold, RELEASED)
            weighted = weights * gradient
            d_logits = (weighted - weights * tl.sum(weighted, 1)[:, None]).to(k.dtype)
            dq = tl.dot(d_logits, k, input_precision="tf32x3") * factor
            place = DQ + image * dq_b + h * dq_h + n[:, None] * dq_n + deep[None, :]
            tl.store(place, dq.to(DQ.dtype.element_ty), mask=(n[:, None] < N) & (deep[None, :] < d))
            dk += tl.dot(tl.trans(d_logits), q, input_precision="tf32x3")  # rows beyond the last query are 0 in q
        place = DK + image * dk_b + h * dk_h + m[:, None] * dk_m + deep[None, :]
        tl.store(place, (dk * factor).to(DK.dtype.element_ty), mask=(m[:, None] < M) & (deep[None, :] < d))
