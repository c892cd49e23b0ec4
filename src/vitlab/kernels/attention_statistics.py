"""Statistics of attention maps from queries and keys in one streaming pass, in O(N) memory per head.

A program computes some rows of a map, a block of keys at a time. With running maximum m, e = exp(l − m), it accumulates
Σ e, Σ e l, Σ e² and Σ e d with the distances d of tokens, rescaled when the maximum grows, as in FlashAttention:

    entropy = log Σ e + m − Σ e l / Σ e,   norm² = Σ e² / (Σ e)²,   distance = Σ e d / Σ e

The sums over the rows of a key's weights need the final Σ e of each row: a second kernel, whose programs own some keys
and walk over the rows. Products run on tensor cores: those of float32 as three TF32 products, which are as accurate as
one in float32, those of bfloat16 and float16 in their precision, with sums in float32.

Shape legend: B batch (windows folded in), H heads, N query tokens, M key tokens, d head channels, T windows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vitlab.kernels import attention_rows
from vitlab.kernels.availability import device_guard, run, transformed, unavailable

try:
    import triton
    import triton.language as tl
except ImportError:  # only CUDA builds of torch include it
    triton = None

OPERATOR = "attention_statistics"
NAMES = ("entropy", "squares", "distance", "received")
#: Names of statistics; the value of `distance` has the positions of queries (T, N, 2) and keys (T, M, 2).
Wanted = Mapping[str, tuple[Tensor, Tensor] | None]


def city_block(rows: Tensor, columns: Tensor) -> Tensor:
    """|p_i − p_j|_1 between positions (T, N, 2) and (T, M, 2), as (T, N, M); 0 where a position is NaN.

    >>> city_block(torch.tensor([[[0.0, 0.0], [torch.nan, 0.0]]]), torch.tensor([[[0.5, 0.25]]])).flatten()
    tensor([0.7500, 0.0000])
    """
    apart = (rows[:, :, None, axis].sub(columns[:, None, :, axis]).abs_() for axis in (0, 1))
    return next(apart).add_(next(apart)).nan_to_num_(nan=0.0)


def plain(maps: Tensor, wanted: Wanted) -> dict[str, Tensor]:
    """Reference implementation, from the maps (B, H, N, M); see `fused`.

    >>> found = plain(torch.full((1, 1, 2, 2), 0.5), {"squares": None, "received": None})
    >>> found["squares"].tolist(), found["received"].tolist()
    ([[[0.5, 0.5]]], [[[1.0, 1.0]]])
    """
    found = {}
    for name, places in wanted.items():
        if name == "entropy":
            found[name] = torch.special.entr(maps).sum(-1)
        elif name == "squares":
            found[name] = maps.square().sum(-1)
        elif name == "received":
            found[name] = maps.sum(-2)
        elif places is not None:
            each = maps.unflatten(0, (-1, len(places[0]))) * city_block(*places)[:, None]
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


def fused(q: Tensor, k: Tensor, scale: float, bias: Tensor | None, wanted: Wanted) -> dict[str, Tensor]:
    """Statistics of softmax(q kᵀ · scale + bias) without storing the map.

    Args:
        q: (B, H, N, d).
        k: (B, H, M, d); fewer heads are shared by groups of queries.
        scale: the factor on q kᵀ.
        bias: broadcastable to (B, H, N, M).
        wanted: names of statistics: `entropy`, `squares` and `distance` (B, H, N), of each row: its entropy in nats,
            its squared norm, and the sum of its entries times the distance between query and key (`city_block`);
            `received` (B, H, M), the sum over rows. The value of `distance` is the positions of queries (T, N, 2) and
            keys (T, M, 2) in window t of each image, NaN for tokens without one; others are None.

    Returns:
        The statistics by name, in float32.
    """
    per_row, received = statistics(q, k, bias, *(wanted.get("distance") or (None, None)), scale, "received" in wanted)
    found = dict(zip(NAMES, (*per_row, received), strict=True))
    return {name: found[name] for name in wanted}


@torch.library.custom_op("vitlab::attention_statistics", mutates_args=())
def statistics(
    q: Tensor,
    k: Tensor,
    bias: Tensor | None,
    row_places: Tensor | None,
    key_places: Tensor | None,
    scale: float,
    summed: bool,
) -> tuple[Tensor, Tensor]:
    """The registered operator, without gradients: entropy, squares and distance (3, B, H, N), and the sum over rows.

    Without places the distance is 0; the sum is (B, H, M), or (B, H, 0) if it is not wanted (`summed`).
    """
    places = None if row_places is None or key_places is None else (row_places, key_places)
    return run(
        OPERATOR,
        lambda: _by_kernels(q, k, bias, places, scale, summed),
        lambda: _by_rows(q, k, bias, places, scale, summed),
    )


@statistics.register_fake
def _(
    q: Tensor,
    k: Tensor,
    bias: Tensor | None,
    row_places: Tensor | None,
    key_places: Tensor | None,
    scale: float,
    summed: bool,
) -> tuple[Tensor, Tensor]:
    return _outputs(q, k, summed)


def _outputs(q: Tensor, k: Tensor, summed: bool) -> tuple[Tensor, Tensor]:
    """Empty tensors for the results of `statistics`."""
    batch, heads, rows, _ = q.shape
    columns = k.shape[2] if summed else 0
    return (
        q.new_empty(3, batch, heads, rows, dtype=torch.float32),
        q.new_empty(batch, heads, columns, dtype=torch.float32),
    )


def _by_rows(
    q: Tensor, k: Tensor, bias: Tensor | None, places: tuple[Tensor, Tensor] | None, scale: float, summed: bool
) -> tuple[Tensor, Tensor]:
    """The results of `statistics` in plain torch, some rows at a time."""
    per_row, received = (each.zero_() for each in _outputs(q, k, summed))
    names = ("entropy", "squares", *(("received",) if summed else ()))
    for place, weights in attention_rows.rows(q, k, scale, bias):
        wanted: dict[str, tuple[Tensor, Tensor] | None] = dict.fromkeys(names)
        if places is not None:
            wanted["distance"] = (places[0][:, place], places[1])
        found = plain(weights, wanted)
        for output, name in zip(per_row, NAMES[:3], strict=True):
            if name in found:
                output[..., place] = found[name]
        if summed:
            received += found["received"]
        del weights  # free it before the next chunk is computed
    return per_row, received


def _by_kernels(
    q: Tensor, k: Tensor, bias: Tensor | None, places: tuple[Tensor, Tensor] | None, scale: float, summed: bool
) -> tuple[Tensor, Tensor]:
    batch, heads, rows, channels = q.shape
    columns = k.shape[2]
    deep = max(16, triton.next_power_of_2(channels))
    first, second = _tile("rows", q), _tile("received", q)
    per_row, received = _outputs(q, k, summed)
    sums = torch.empty_like(per_row[0])  # log Σ exp of each row
    where = (per_row, per_row) if places is None else tuple(each.float().contiguous() for each in places)
    strides = (0, 0, 0, 0) if bias is None else bias.expand(batch, heads, rows, columns).stride()
    sizes = (heads, heads // k.shape[1], rows, columns, channels, 1 if places is None else len(places[0]), scale)
    added, constants = q if bias is None else bias, {"BIASED": bias is not None, "DEEP": deep}
    with device_guard(q):
        _statistics_kernel[(batch * heads * triton.cdiv(rows, first["TALL"]),)](
            q, k, added, *where, per_row, sums,
            *q.stride(), *k.stride(), *strides, per_row.stride(0), *sizes,
            PLACED=places is not None, **constants, **first,
        )  # fmt: skip
        if summed:
            _received_kernel[(batch * heads * triton.cdiv(columns, second["WIDE"]),)](
                q, k, added, sums, received, *q.stride(), *k.stride(), *strides, *sizes,
                **constants, **second,
            )  # fmt: skip
    return per_row, received


def _tile(kernel: str, q: Tensor) -> dict[str, int]:
    """The number of rows and keys of one program, and its warps and stages."""
    if q.shape[-1] > 64:
        return {"TALL": 32, "WIDE": 32, "num_warps": 4, "num_stages": 1}
    return {"TALL": 128 if q.shape[2] > 64 else 64, "WIDE": 64, "num_warps": 4, "num_stages": 2}


if triton is not None:

    @triton.jit
    def _queries(Q, n, q_n, q_d, N, d, DEEP: tl.constexpr):
        deep = tl.arange(0, DEEP)
        present = (n[:, None] < N) & (deep[None, :] < d)
        return tl.load(Q + n[:, None] * q_n + deep[None, :] * q_d, mask=present, other=0.0)

    @triton.jit
    def _keys(K, m, k_m, k_d, M, d, DEEP: tl.constexpr):
        deep = tl.arange(0, DEEP)
        present = (m[None, :] < M) & (deep[:, None] < d)
        return tl.load(K + m[None, :] * k_m + deep[:, None] * k_d, mask=present, other=0.0)

    @triton.jit
    def _logits(q, k, BIAS, n, m, b_n, b_m, N, M, scale, BIASED: tl.constexpr):
        """The logits of some rows and keys; minus infinity beyond the last key."""
        logits = tl.dot(q, k, input_precision="tf32x3") * scale
        if BIASED:
            present = (n[:, None] < N) & (m[None, :] < M)
            logits += tl.load(BIAS + n[:, None] * b_n + m[None, :] * b_m, mask=present, other=0.0).to(tl.float32)
        return tl.where(m[None, :] < M, logits, -float("inf"))

    @triton.jit
    def _statistics_kernel(
        Q, K, BIAS, ROW_PLACES, KEY_PLACES, ROWS, SUMS,
        q_b, q_h, q_n, q_d, k_b, k_h, k_m, k_d, b_b, b_h, b_n, b_m, between, heads, group, N, M, d, windows, scale,
        PLACED: tl.constexpr, DEEP: tl.constexpr, BIASED: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr,
    ) -> None:  # fmt: skip
        """The statistics of some rows of one head, and log Σ exp of each row in `SUMS`."""
        tiles = tl.cdiv(N, TALL)
        map = (tl.program_id(0) // tiles).to(tl.int64)
        tile = tl.program_id(0) % tiles
        image, h = map // heads, map % heads
        n = tile * TALL + tl.arange(0, TALL)
        q = _queries(Q + image * q_b + h * q_h, n, q_n, q_d, N, d, DEEP)
        keys, bias = K + image * k_b + h // group * k_h, BIAS + image * b_b + h * b_h
        row_places, key_places = ROW_PLACES + (image % windows) * N * 2, KEY_PLACES + (image % windows) * M * 2
        if PLACED:
            down = tl.load(row_places + 2 * n, mask=n < N, other=0.0)
            right = tl.load(row_places + 2 * n + 1, mask=n < N, other=0.0)
        top = tl.full([TALL], -float("inf"), tl.float32)
        total = tl.zeros([TALL], tl.float32)
        mean, square, distance = total, total, total
        for start in range(0, M, WIDE):
            m = start + tl.arange(0, WIDE)
            logits = _logits(q, _keys(keys, m, k_m, k_d, M, d, DEEP), bias, n, m, b_n, b_m, N, M, scale, BIASED)
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
            if PLACED:
                apart = tl.abs(down[:, None] - tl.load(key_places + 2 * m, mask=m < M, other=0.0)[None, :])
                apart += tl.abs(right[:, None] - tl.load(key_places + 2 * m + 1, mask=m < M, other=0.0)[None, :])
                distance = distance * shrink + tl.sum(e * tl.where(apart == apart, apart, 0.0), 1)
            top = new
        out = ROWS + map * N + n
        tl.store(out, tl.log(total) - mean / total, mask=n < N)
        tl.store(out + between, square / (total * total), mask=n < N)
        tl.store(out + 2 * between, distance / total, mask=n < N)
        sums = tl.where(top == -float("inf"), 0.0, top) + tl.log(total)
        tl.store(SUMS + map * N + n, sums, mask=n < N)

    @triton.jit
    def _received_kernel(
        Q, K, BIAS, SUMS, RECEIVED,
        q_b, q_h, q_n, q_d, k_b, k_h, k_m, k_d, b_b, b_h, b_n, b_m, heads, group, N, M, d, windows, scale,
        DEEP: tl.constexpr, BIASED: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr,
    ) -> None:  # fmt: skip
        """The sums over all rows of the weights of some keys of one head; `SUMS` is log Σ exp of each row."""
        tiles = tl.cdiv(M, WIDE)
        map = (tl.program_id(0) // tiles).to(tl.int64)
        image, h = map // heads, map % heads
        m = (tl.program_id(0) % tiles) * WIDE + tl.arange(0, WIDE)
        k = _keys(K + image * k_b + h // group * k_h, m, k_m, k_d, M, d, DEEP)
        total = tl.zeros([WIDE], tl.float32)
        for start in range(0, N, TALL):
            n = start + tl.arange(0, TALL)
            q = _queries(Q + image * q_b + h * q_h, n, q_n, q_d, N, d, DEEP)
            logits = _logits(q, k, BIAS + image * b_b + h * b_h, n, m, b_n, b_m, N, M, scale, BIASED)
            sums = tl.load(SUMS + map * N + n, mask=n < N, other=0.0)
            total += tl.sum(tl.where(n[:, None] < N, tl.exp(logits - sums[:, None]), 0.0), 0)
        tl.store(RECEIVED + map * M + m, total, mask=m < M)
