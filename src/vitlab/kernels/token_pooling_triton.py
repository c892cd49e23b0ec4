"""Token pooling on GPUs: the band of weights is built in registers and multiplied on tensor cores.

A program handles some rows (tokens of the grid) of one image. The tokens that reach them lie within a band of the
matrix; the program walks over it. A table has the ring of each pair of tokens, which selects the coefficient: that of
branch r if branches are dilated, the sum of branches r and above if they are nested. One backward kernel computes the
gradient of the tokens, with the transposed band, and that of the weights. Tokens before the grid are copied by the
programs of the first rows: as rows of the matrix they would need a second tile if the grid fills one.

Shape legend: B batch, N tokens of the grid (in Python: and before it), D channels, K branches.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vitlab.kernels.availability import device_guard, run
from vitlab.kernels.token_pooling_plain import shifted, shifted_backward

try:
    import triton
    import triton.language as tl
except ImportError:  # only CUDA builds of torch include it
    triton = None

MAXIMUM_BRANCHES = 8


@torch.library.custom_op("vitlab::pool_tokens", mutates_args=())
def pool(x: Tensor, weights: Tensor, width: int, prefix: int, nested: bool) -> Tensor:
    """The registered operator: x (B, N, D), weights (B or 1, N − prefix, K) -> (B, N, D)."""
    return run(
        "token_pooling",
        lambda: _forward(x, weights, width, prefix, nested),
        lambda: shifted(x, weights, _grid(x, width, prefix), prefix=prefix, nested=nested),
    )


@torch.library.custom_op("vitlab::pool_tokens_backward", mutates_args=())
def pool_backward(
    gradient: Tensor, x: Tensor, weights: Tensor, width: int, prefix: int, nested: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of x, (B, N, D), and of the weights, (B, N − prefix, K), in one launch."""
    return run(
        "token_pooling",
        lambda: _backward(gradient, x, weights, width, prefix, nested),
        lambda: shifted_backward(gradient, x, weights, _grid(x, width, prefix), prefix=prefix, nested=nested),
    )


@pool.register_fake
def _(x: Tensor, weights: Tensor, width: int, prefix: int, nested: bool) -> Tensor:
    return x.new_empty(x.shape)


@pool_backward.register_fake
def _(gradient: Tensor, x: Tensor, weights: Tensor, width: int, prefix: int, nested: bool) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), weights.new_empty(len(x), *weights.shape[1:])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.settings = inputs[2:]


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, weights = ctx.saved_tensors
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # second derivatives use plain operations
        width, prefix, nested = ctx.settings
        grid = _grid(x, width, prefix)
        dx, dweights = shifted_backward(gradient, x, weights, grid, prefix=prefix, nested=nested)
    else:
        dx, dweights = pool_backward(gradient, x, weights, *ctx.settings)
    return dx, dweights.sum_to_size(weights.shape), None, None, None


pool.register_autograd(_differentiate, setup_context=_save)


def _grid(x: Tensor, width: int, prefix: int) -> tuple[int, int]:
    return (x.shape[1] - prefix) // width, width


def _forward(x: Tensor, weights: Tensor, width: int, prefix: int, nested: bool) -> Tensor:
    x, weights = _rows_contiguous(x), weights.expand(len(x), -1, -1)
    output = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    (batch, _, channels), count = x.shape, weights.shape[1]
    tile, rings = _tile("forward", x, count), _rings(x, weights, width, prefix, nested)
    with device_guard(x):
        _pool_kernel[(batch * triton.cdiv(count, tile["ROWS"]), triton.cdiv(channels, tile["DEEP"]))](
            x, weights, rings, output, rings.stride(0), *x.stride()[:2], *weights.stride(), *output.stride()[:2],
            count, channels,
            **tile, **_constants(weights, width, prefix, nested),
        )  # fmt: skip
    return output


def _backward(
    gradient: Tensor, x: Tensor, weights: Tensor, width: int, prefix: int, nested: bool
) -> tuple[Tensor, Tensor]:
    x, gradient, weights = _rows_contiguous(x), _rows_contiguous(gradient), weights.expand(len(x), -1, -1)
    (batch, _, channels), count = x.shape, weights.shape[1]
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    dweights = torch.empty(weights.shape, dtype=weights.dtype, device=x.device)
    tile, rings = _tile("backward", x, count), _rings(x, weights, width, prefix, nested)
    with device_guard(x):
        _pool_backward_kernel[(batch * triton.cdiv(count, tile["ROWS"]), triton.cdiv(channels, tile["DEEP"]) + 1)](
            gradient, x, weights, rings, dx, dweights, rings.stride(0),
            *gradient.stride()[:2], *x.stride()[:2], *weights.stride(), *dx.stride()[:2], *dweights.stride(),
            count, channels,
            WIDE=triton.next_power_of_2(weights.shape[-1]),
            **tile, **_constants(weights, width, prefix, nested),
        )  # fmt: skip
    return dx, dweights


_RINGS: dict[tuple[Any, ...], Tensor] = {}


def _rings(x: Tensor, weights: Tensor, width: int, prefix: int, nested: bool) -> Tensor:
    """The ring of each pair of tokens of the grid, (h·w, h·w or more) int8: −1 without one.

    r = max(|Δrow|, |Δcolumn|) < K, where dilated branches contain only pairs with |Δ| = 0 or r in both directions. The
    table is kept: it is made before a CUDA graph is captured.
    """
    grid, branches = _grid(x, width, prefix), weights.shape[-1]
    key = (x.device, grid, branches, nested)
    if key not in _RINGS:
        sides = (torch.arange(side, device=x.device) for side in grid)
        down, right = ((n[:, None] - n).abs().clamp(max=branches).to(torch.int8) for n in sides)
        down, right = down[:, None, :, None], right[None, :, None, :]  # bytes, since there are (h·w)² pairs
        ring = torch.maximum(down, right)
        outside = ring == branches
        if not nested:
            outside |= (down != 0) & (down != ring)
            outside |= (right != 0) & (right != ring)
        ring = ring.masked_fill_(outside, -1).flatten(2).flatten(0, 1)
        _RINGS[key] = F.pad(ring, (0, -len(ring) % 16), value=-1)  # rows start at multiples of 16 bytes
    return _RINGS[key]


def _rows_contiguous(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _constants(weights: Tensor, width: int, prefix: int, nested: bool) -> dict[str, Any]:
    few = triton.next_power_of_2(max(prefix, 1))
    return {"K": weights.shape[-1], "WIDTH": width, "PREFIX": prefix, "FEW": few, "NESTED": nested}


def _tile(kernel: str, x: Tensor, count: int) -> dict[str, int]:
    """The size of the work of one program for `count` tokens of the grid, and its warps and stages.

    Columns start at multiples of ALIGN, the number of rings that one instruction loads.
    """
    channels = x.shape[-1]
    deep = 64 if 0 < channels % 128 <= 64 else 128  # the last block of channels is at least half full
    deep = int(min(deep, max(16, triton.next_power_of_2(channels))))
    walks = kernel == "forward" and count > 64  # over several blocks of columns
    stages = 3 if walks and x.dtype != torch.float32 else 1
    return {
        "ROWS": 64, "COLUMNS": 32 if walks else 64, "DEEP": deep, "ALIGN": 16 if kernel == "forward" else 4,
        "num_warps": 4, "num_stages": stages,
    }  # fmt: skip


if triton is not None:

    @triton.jit
    def _band(
        W, n, ring, w_n, w_k, N,
        K: tl.constexpr, NESTED: tl.constexpr,
    ):  # fmt: skip
        """The coefficients of pairs of tokens: `ring` of each pair, `n` the token whose weights are used."""
        band = tl.zeros(ring.shape, tl.float32)
        total = tl.zeros(n.shape, tl.float32)
        for branch in tl.static_range(K - 1, -1, -1):
            weight = tl.load(W + n * w_n + branch * w_k, mask=n < N, other=0.0).to(tl.float32)
            if NESTED:
                total += weight / ((2 * branch + 1) * (2 * branch + 1))
                band = tl.where(ring == branch, total, band)
            elif branch > 0:
                total += weight / 9
                band = tl.where(ring == branch, weight / 9, band)
            else:
                band = tl.where(ring == 0, total + weight, band)
        return band

    @triton.jit
    def _reached(
        first, N,
        K: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, ALIGN: tl.constexpr,
    ):  # fmt: skip
        """The first column, a multiple of ALIGN, and the end of the columns that rows from `first` on depend on."""
        span: tl.constexpr = (K - 1) * (WIDTH + 1)
        return tl.maximum(first - span, 0) // ALIGN * ALIGN, tl.minimum(first + ROWS + span, N)

    @triton.jit
    def _pool_kernel(
        X, W, RINGS, Y, r_n, x_b, x_n, w_b, w_n, w_k, y_b, y_n, N, D,
        DEEP: tl.constexpr, K: tl.constexpr, WIDTH: tl.constexpr, PREFIX: tl.constexpr, FEW: tl.constexpr,
        NESTED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ALIGN: tl.constexpr,
    ) -> None:  # fmt: skip
        """Pool some channels of some tokens of one image."""
        blocks = tl.cdiv(N, ROWS)
        image = (tl.program_id(0) // blocks).to(tl.int64)
        first = (tl.program_id(0) % blocks) * ROWS
        n = first + tl.arange(0, ROWS)
        channels = tl.program_id(1) * DEEP + tl.arange(0, DEEP)
        X += image * x_b
        Y += image * y_b
        before = first + tl.arange(0, FEW)[:, None]  # tokens before the grid, in the first rows only
        copied = (before < PREFIX) & (channels[None, :] < D)
        copy = tl.load(X + before * x_n + channels[None, :], mask=copied)
        low, high = _reached(first, N, K, WIDTH, ROWS, ALIGN)
        total = tl.zeros([ROWS, DEEP], tl.float32)
        for start in range(low, high, COLUMNS):
            m = start + tl.arange(0, COLUMNS)
            paired = (n[:, None] < N) & (m[None, :] < r_n)
            ring = tl.load(RINGS + n[:, None] * r_n + m[None, :], mask=paired, other=-1)
            band = _band(W + image * w_b, n[:, None], ring, w_n, w_k, N, K, NESTED)
            present = (m[:, None] < N) & (channels[None, :] < D)
            x = tl.load(X + (PREFIX + m[:, None]) * x_n + channels[None, :], mask=present, other=0.0)
            total += tl.dot(band.to(x.dtype), x, input_precision="tf32x3")
        present = (n[:, None] < N) & (channels[None, :] < D)
        place = Y + (PREFIX + n[:, None]) * y_n + channels[None, :]
        tl.store(place, total.to(Y.dtype.element_ty), mask=present)
        tl.store(Y + before * y_n + channels[None, :], copy, mask=copied)

    @triton.jit
    def _token_gradient(
        G, W, RINGS, DX, r_n, g_n, w_n, w_k, dx_n, N, D, first, n, low, high, channels,
        K: tl.constexpr, PREFIX: tl.constexpr, FEW: tl.constexpr, NESTED: tl.constexpr,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr,
    ) -> None:  # fmt: skip
        """The gradient of some channels of some tokens of one image: the transposed band times the gradient."""
        before = first + tl.arange(0, FEW)[:, None]  # tokens before the grid, in the first rows only
        copied = (before < PREFIX) & (channels[None, :] < D)
        copy = tl.load(G + before * g_n + channels[None, :], mask=copied)
        total = tl.zeros([ROWS, DEEP], tl.float32)
        for start in range(low, high, COLUMNS):
            m = start + tl.arange(0, COLUMNS)
            paired = (n[:, None] < N) & (m[None, :] < r_n)
            ring = tl.load(RINGS + n[:, None] * r_n + m[None, :], mask=paired, other=-1)
            band = _band(W, m[None, :], ring, w_n, w_k, N, K, NESTED)
            present = (m[:, None] < N) & (channels[None, :] < D)
            g = tl.load(G + (PREFIX + m[:, None]) * g_n + channels[None, :], mask=present, other=0.0)
            total += tl.dot(band.to(g.dtype), g, input_precision="tf32x3")
        place = DX + (PREFIX + n[:, None]) * dx_n + channels[None, :]
        tl.store(place, total.to(DX.dtype.element_ty), mask=(n[:, None] < N) & (channels[None, :] < D))
        tl.store(DX + before * dx_n + channels[None, :], copy, mask=copied)

    @triton.jit
    def _weight_gradient(
        G, X, RINGS, DW, r_n, g_n, x_n, dw_n, dw_k, N, D, n, low, high,
        K: tl.constexpr, PREFIX: tl.constexpr, NESTED: tl.constexpr,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr, WIDE: tl.constexpr,
    ) -> None:  # fmt: skip
        """The gradient of the weights of some tokens of one image: sums of gradient · token over each ring."""
        branches = tl.arange(0, WIDE)
        sums = tl.zeros([ROWS, WIDE], tl.float32)
        for start in range(low, high, COLUMNS):
            m = start + tl.arange(0, COLUMNS)
            product = tl.zeros([ROWS, COLUMNS], tl.float32)
            for channel in range(0, D, DEEP):
                channels = channel + tl.arange(0, DEEP)
                present = (n[:, None] < N) & (channels[None, :] < D)
                g = tl.load(G + (PREFIX + n[:, None]) * g_n + channels[None, :], mask=present, other=0.0)
                present = (m[None, :] < N) & (channels[:, None] < D)
                x = tl.load(X + (PREFIX + m[None, :]) * x_n + channels[:, None], mask=present, other=0.0)
                product += tl.dot(g, x, input_precision="tf32x3")
            paired = (n[:, None] < N) & (m[None, :] < r_n)
            ring = tl.load(RINGS + n[:, None] * r_n + m[None, :], mask=paired, other=-1)
            for r in tl.static_range(K):
                sum = tl.sum(tl.where(ring == r, product, 0.0), 1)
                if NESTED or r == 0:
                    sums += tl.where(branches[None, :] >= r, sum[:, None], 0.0)
                else:
                    sums += tl.where(branches[None, :] == r, sum[:, None], 0.0)
        side = 2 * branches + 1
        if not NESTED:
            side = tl.where(branches == 0, 1, 3)
        sums = sums / (side * side)[None, :].to(tl.float32)
        present = (n[:, None] < N) & (branches[None, :] < K)
        place = DW + n[:, None] * dw_n + branches[None, :] * dw_k
        tl.store(place, sums.to(DW.dtype.element_ty), mask=present)

    @triton.jit
    def _pool_backward_kernel(
        G, X, W, RINGS, DX, DW, r_n, g_b, g_n, x_b, x_n, w_b, w_n, w_k, dx_b, dx_n, dw_b, dw_n, dw_k, N, D,
        DEEP: tl.constexpr, WIDE: tl.constexpr, K: tl.constexpr, WIDTH: tl.constexpr, PREFIX: tl.constexpr,
        FEW: tl.constexpr, NESTED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ALIGN: tl.constexpr,
    ) -> None:  # fmt: skip
        """The gradient of the weights of some tokens (started first: it takes longest), or of some channels of them."""
        blocks = tl.cdiv(N, ROWS)
        image = (tl.program_id(0) // blocks).to(tl.int64)
        first = (tl.program_id(0) % blocks) * ROWS
        n = first + tl.arange(0, ROWS)
        low, high = _reached(first, N, K, WIDTH, ROWS, ALIGN)
        if tl.program_id(1) == 0:
            _weight_gradient(
                G + image * g_b, X + image * x_b, RINGS, DW + image * dw_b, r_n, g_n, x_n, dw_n, dw_k, N, D,
                n, low, high, K, PREFIX, NESTED, ROWS, COLUMNS, DEEP, WIDE,
            )  # fmt: skip
        else:
            channels = (tl.program_id(1) - 1) * DEEP + tl.arange(0, DEEP)
            _token_gradient(
                G + image * g_b, W + image * w_b, RINGS, DX + image * dx_b, r_n, g_n, w_n, w_k, dx_n, N, D,
                first, n, low, high, channels, K, PREFIX, FEW, NESTED, ROWS, COLUMNS, DEEP,
            )  # fmt: skip
