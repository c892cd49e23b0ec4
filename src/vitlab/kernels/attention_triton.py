"""Attention of short sequences on GPUs, and the sums that the diversification loss needs of its map.

All keys of a head are in one tile, so that a softmax is one step and nothing is rescaled. The backward kernel of a head
walks over the queries and keeps the gradients of keys and values in registers: no partial results leave a program. The
diversification loss (ADL) adds its gradient of the map to that of the output, and both share one softmax backward. If
heads are averaged, ADL's sums, and its gradient of the map, which all heads share, are those of
`attention_diversity_triton`: a program that held the average would have no registers left for the output.

Shape legend: B batch, H heads, N queries, M keys, d head channels, G maps: B, or B·H if heads are not averaged.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vitlab.kernels import attention_plain as plain
from vitlab.kernels import attention_tiles as tiles
from vitlab.kernels.attention_diversity_triton import averaged_sums, map_gradients
from vitlab.kernels.availability import device_guard, run

try:
    import triton
    import triton.language as tl
except ImportError:  # only CUDA builds of torch include it
    triton = None

OPERATOR = "attention"

#: Rows, warps and stages of one program, for at most 128 keys and for more: the fastest on an H200.
_TILES = {
    "forward": ((64, 4, 1), (64, 4, 1)),
    "forward with sums": ((16, 4, 1), (32, 4, 1)),
    "backward": ((32, 4, 1), (32, 8, 2)),
}


@torch.library.custom_op("vitlab::attention", mutates_args=())
def attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
    scale: float, threshold: float, released: bool, averaged: bool, diversified: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The registered operator: the output (B, H, N, d), the sums (G, M) of `plain.attend`, and log2 Σ exp of each row.

    Without `diversified` the two sums are empty.
    """

    def without_kernel() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        output, *found = plain.attend(q, k, v, bias, scale, threshold, released, averaged)
        totals, units = (each if diversified else tiles.empty_sums(0, like=q) for each in found)
        unused = tiles.empty_sums(*q.shape[:3], like=q).zero_()  # the plain backward does not use the sums of rows
        return tiles.empty_heads(q).copy_(output), totals, units, unused

    settings = (scale, threshold, released, averaged, diversified)
    return run(OPERATOR, lambda: _forward(q, k, v, bias, *settings), without_kernel)


@torch.library.custom_op("vitlab::attention_backward", mutates_args=())
def attend_backward(
    d_output: Tensor, d_totals: Tensor, d_units: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
    sums: Tensor, scale: float, threshold: float, released: bool, averaged: bool, diversified: bool,
    bias_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k, v and, if wanted (else empty), of the bias, (B, H, N, M)."""
    settings = (scale, threshold, released, averaged)
    operands = (d_output, d_totals, d_units, q, k, v, bias)

    def without_kernel() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        gradients = _plain_backward(*operands, *settings, diversified)
        # A compiled graph relies on the memory order.
        dq, dk, dv = (tiles.empty_heads(x).copy_(dx) for x, dx in zip((q, k, v), gradients[:3], strict=True))
        return dq, dk, dv, _empty_bias(q, k, bias_gradient).copy_(gradients[3] if bias_gradient else q.new_empty(0))

    return run(OPERATOR, lambda: _backward(*operands, sums, *settings, diversified, bias_gradient), without_kernel)


def _empty_bias(q: Tensor, k: Tensor, wanted: bool) -> Tensor:
    """An empty gradient of the bias, in the precision of the queries."""
    return q.new_empty((*q.shape[:3], k.shape[2]) if wanted else (0,))


def _plain_backward(
    d_output: Tensor, d_totals: Tensor, d_units: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
    scale: float, threshold: float, released: bool, averaged: bool, diversified: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    given = (d_totals, d_units) if diversified else None
    return plain.attend_backward(d_output, given, q, k, v, bias, scale, threshold, released, averaged)


@attend.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
    scale: float, threshold: float, released: bool, averaged: bool, diversified: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    maps = q.shape[0] if averaged else q.shape[0] * q.shape[1]
    size = (maps, k.shape[2]) if diversified else (0,)
    totals, units = (tiles.empty_sums(*size, like=q) for _ in range(2))
    return tiles.empty_heads(q), totals, units, tiles.empty_sums(*q.shape[:3], like=q)


@attend_backward.register_fake
def _(
    d_output: Tensor, d_totals: Tensor, d_units: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
    sums: Tensor, scale: float, threshold: float, released: bool, averaged: bool, diversified: bool,
    bias_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    return tiles.empty_heads(q), tiles.empty_heads(k), tiles.empty_heads(v), _empty_bias(q, k, bias_gradient)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, bias, *settings = inputs
    # The sums come first: a checkpoint whose second forward runs another attention, which saves q first, is an error.
    ctx.save_for_backward(output[3], q, k, v, bias)
    ctx.settings = tuple(settings)


def _differentiate(ctx: Any, d_output: Tensor, d_totals: Tensor, d_units: Tensor, _: Tensor) -> tuple[Any, ...]:
    sums, q, k, v, bias = ctx.saved_tensors
    wanted = ctx.needs_input_grad[3]
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # second derivatives use plain operations
        gradients = _plain_backward(d_output, d_totals, d_units, q, k, v, bias, *ctx.settings)
    else:
        gradients = attend_backward(d_output, d_totals, d_units, q, k, v, bias, sums, *ctx.settings, wanted)
    d_bias = gradients[3].sum_to_size(bias.shape).to(bias.dtype) if wanted else None
    return *gradients[:3], d_bias, None, None, None, None, None


attend.register_autograd(_differentiate, setup_context=_save)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
    scale: float, threshold: float, released: bool, averaged: bool, diversified: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    batch, heads, rows, channels = q.shape
    columns = k.shape[2]
    constants = {**tiles.constants(q, k, bias), "RELEASED": released}
    output, sums = tiles.empty_heads(q), tiles.empty_sums(batch, heads, rows, like=q)
    operands = (q, k, v, q if bias is None else bias, output, sums)
    strides = (*q.stride(), *k.stride(), *v.stride(), *tiles.bias_strides(q, k, bias), *output.stride()[:3])
    sizes = (heads, rows, columns, channels, scale * tiles.LOG2_E, threshold)
    with_sums = diversified and not averaged
    size = (batch * heads, columns) if with_sums else (0,)
    totals, units = (tiles.empty_sums(*size, like=q) for _ in range(2))
    with device_guard(q):
        _head_kernel[(batch * heads,)](
            *operands, totals, units, *strides, *sizes, WITH_SUMS=with_sums,
            **constants, **_tile("forward with sums" if with_sums else "forward", q, k),
        )  # fmt: skip
    if diversified and averaged:
        totals, units, _ = averaged_sums(q, k, bias, sums, scale, threshold, released)
    return output, totals, units, sums


def _backward(
    d_output: Tensor, d_totals: Tensor, d_units: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
    sums: Tensor, scale: float, threshold: float, released: bool, averaged: bool, diversified: bool,
    bias_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    batch, heads, rows, channels = q.shape
    dq, dk, dv = tiles.empty_heads(q), tiles.empty_heads(k), tiles.empty_heads(v)
    d_bias = _empty_bias(q, k, bias_gradient)
    shared = sums  # not read
    if diversified:
        d_totals, d_units = d_totals.float().contiguous(), d_units.float().contiguous()
        if averaged:
            shared = map_gradients(d_totals, d_units, q, k, bias, sums, scale, threshold, released)
    with device_guard(q):
        _backward_kernel[(batch * heads,)](
            q, k, v, q if bias is None else bias, d_output, d_totals, d_units, sums, shared, dq, dk, dv, d_bias,
            *q.stride(), *k.stride(), *v.stride(), *tiles.bias_strides(q, k, bias), *d_output.stride(),
            *dq.stride()[:3], *dk.stride()[:3], *dv.stride()[:3],
            heads, rows, k.shape[2], channels, scale * tiles.LOG2_E, threshold, scale,
            SHARED=diversified and averaged, OWN=diversified and not averaged, BIAS_GRADIENT=bias_gradient,
            RELEASED=released, **tiles.constants(q, k, bias), **_tile("backward", q, k),
        )  # fmt: skip
    return dq, dk, dv, d_bias


def _tile(kernel: str, q: Tensor, k: Tensor) -> dict[str, int]:
    """The number of rows of one program, and its warps and stages."""
    rows, warps, stages = _TILES[kernel][k.shape[2] > 128]
    rows = min(rows, max(16, triton.next_power_of_2(q.shape[2])))
    return {"ROWS": rows, "num_warps": warps, "num_stages": stages}


if triton is not None:

    @triton.jit
    def _store(Y, y, n, y_n, N, d, DEEP: tl.constexpr):
        """Store some rows (tokens) of one head."""
        deep = tl.arange(0, DEEP)
        present = (n[:, None] < N) & (deep[None, :] < d)
        tl.store(Y + n[:, None] * y_n + deep[None, :], y.to(Y.dtype.element_ty), mask=present)

    @triton.jit
    def _head_kernel(
        Q, K, V, BIAS, OUT, SUMS, TOTALS, UNITS,
        q_b, q_h, q_n, q_d, k_b, k_h, k_m, k_d, v_b, v_h, v_m, v_d, b_b, b_h, b_n, b_m, o_b, o_h, o_n,
        heads, N, M, d, scale, threshold,
        BIASED: tl.constexpr, RELEASED: tl.constexpr, WITH_SUMS: tl.constexpr,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr,
    ) -> None:  # fmt: skip
        """All rows of one head, whose keys and values are loaded once; if wanted, the sums over the rows of its map."""
        map = tl.program_id(0).to(tl.int64)
        image, h = map // heads, map % heads
        m = tl.arange(0, COLUMNS)
        beyond = tl.where(m < M, 0.0, -float("inf"))
        k = tiles.load_rows(K + image * k_b + h * k_h, m, k_m, k_d, M, d, DEEP)
        v = tiles.load_rows(V + image * v_b + h * v_h, m, v_m, v_d, M, d, DEEP)
        if WITH_SUMS:
            totals, units = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
        for start in range(0, N, ROWS):
            n = start + tl.arange(0, ROWS)
            q = tiles.load_rows(Q + image * q_b + h * q_h, n, q_n, q_d, N, d, DEEP)
            bias = BIAS + image * b_b + h * b_h
            weights, sums = tiles.softmax_rows(tiles.logits_of(q, k, beyond, bias, n, m, b_n, b_m, N, M, scale, BIASED))
            tl.store(SUMS + map * N + n, sums, mask=n < N)
            output = tl.dot(weights.to(v.dtype), v, input_precision="tf32x3")
            _store(OUT + image * o_b + h * o_h, output, n, o_n, N, d, DEEP)
            if WITH_SUMS:
                more, others = tiles.terms(tl.where(n[:, None] < N, weights, 0.0), threshold, RELEASED)
                totals += more
                units += others
        if WITH_SUMS:
            tl.store(TOTALS + map * M + m, tl.sum(totals, 0), mask=m < M)
            tl.store(UNITS + map * M + m, tl.sum(units, 0), mask=m < M)

    @triton.jit
    def _backward_kernel(
        Q, K, V, BIAS, D_OUT, D_TOTALS, D_UNITS, SUMS, SHARED_GRADIENT, DQ, DK, DV, D_BIAS,
        q_b, q_h, q_n, q_d, k_b, k_h, k_m, k_d, v_b, v_h, v_m, v_d, b_b, b_h, b_n, b_m, g_b, g_h, g_n, g_d,
        dq_b, dq_h, dq_n, dk_b, dk_h, dk_m, dv_b, dv_h, dv_m, heads, N, M, d, scale, threshold, factor,
        BIASED: tl.constexpr, RELEASED: tl.constexpr,
        SHARED: tl.constexpr, OWN: tl.constexpr, BIAS_GRADIENT: tl.constexpr,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr,
    ) -> None:  # fmt: skip
        """The gradients of one head. Tiles of maps are transposed, (COLUMNS, ROWS), as three of five products need."""
        map = tl.program_id(0).to(tl.int64)
        image, h = map // heads, map % heads
        m = tl.arange(0, COLUMNS)
        beyond = tl.where(m < M, 0.0, -float("inf"))
        k = tiles.load_rows(K + image * k_b + h * k_h, m, k_m, k_d, M, d, DEEP)
        v = tiles.load_rows(V + image * v_b + h * v_h, m, v_m, v_d, M, d, DEEP)
        dk, dv = tl.zeros([COLUMNS, DEEP], tl.float32), tl.zeros([COLUMNS, DEEP], tl.float32)
        for start in range(0, N, ROWS):
            n = start + tl.arange(0, ROWS)
            # Queries and gradients beyond the last row are 0, so that these rows add nothing to dk and dv.
            q = tiles.load_rows(Q + image * q_b + h * q_h, n, q_n, q_d, N, d, DEEP)
            g = tiles.load_rows(D_OUT + image * g_b + h * g_h, n, g_n, g_d, N, d, DEEP)
            logits = tl.dot(k, tl.trans(q), input_precision="tf32x3") * scale + beyond[:, None]
            if BIASED:
                place = BIAS + image * b_b + h * b_h + n[None, :] * b_n + m[:, None] * b_m
                bias = tl.load(place, mask=(n[None, :] < N) & (m[:, None] < M), other=0.0)
                logits += bias.to(tl.float32) * 1.4426950408889634
            sums = tl.load(SUMS + map * N + n, mask=n < N, other=0.0)
            weights = tl.exp2(logits - sums[None, :])
            gradient = tl.dot(v, tl.trans(g), input_precision="tf32x3")
            if SHARED:
                place = SHARED_GRADIENT + (image * N + n[:, None]) * COLUMNS + m[None, :]
                gradient += tl.trans(tl.load(place, mask=n[:, None] < N, other=0.0)).to(tl.float32)
            if OWN:
                d_totals = tl.load(D_TOTALS + map * M + m, mask=m < M, other=0.0)
                d_units = tl.load(D_UNITS + map * M + m, mask=m < M, other=0.0)
                gradient += tiles.map_gradient(weights, d_totals, d_units, threshold, RELEASED, 0)
            weighted = weights * gradient
            d_logits = (weighted - weights * tl.sum(weighted, 0)[None, :]).to(k.dtype)
            if BIAS_GRADIENT:
                place = D_BIAS + (map * N + n[None, :]) * M + m[:, None]
                tl.store(place, d_logits, mask=(n[None, :] < N) & (m[:, None] < M))
            dq = tl.trans(tl.dot(tl.trans(k), d_logits, input_precision="tf32x3")) * factor
            _store(DQ + image * dq_b + h * dq_h, dq, n, dq_n, N, d, DEEP)
            dk += tl.dot(d_logits, q, input_precision="tf32x3")
            dv += tl.dot(weights.to(g.dtype), g, input_precision="tf32x3")
        _store(DK + image * dk_b + h * dk_h, dk * factor, m, dk_m, M, d, DEEP)
        _store(DV + image * dv_b + h * dv_h, dv, m, dv_m, M, d, DEEP)
