"""Rows of attention maps from queries and keys, in plain torch and in chunks, so that no full map is in memory.

Shape legend: B batch, H heads, N query tokens, M key tokens, d head channels.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK = 1 << 25  # elements of the map in memory at a time: 128 MiB in float32, all of DeiT-Ti's at batch 256


def rows(q: Tensor, k: Tensor, scale: float, bias: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """Iterate over softmax(q kᵀ · scale + bias) in chunks of rows, in float32 (or float64).

    Args:
        q: (B, H, N, d).
        k: (B, H, M, d); fewer heads are shared by groups of queries.
        scale: the factor on q kᵀ.
        bias: added to the logits, broadcastable to (B, H, N, M).

    Yields:
        A slice of the rows in the map, and these rows, (B, H, n, M).

    >>> zeros = torch.zeros(1, 1, 2, 3)
    >>> [(place, weights.tolist()) for place, weights in rows(zeros, zeros, 1.0, None)]
    [(slice(0, 2, None), [[[[0.5, 0.5], [0.5, 0.5]]]])]
    """
    shared = keys(q, k)
    places = chunks((*q.shape[:3], k.shape[2]))
    for place in places:
        weights = logits(q, shared, scale, bias, place)
        if place is places[-1]:
            del shared
        softmax = weights.softmax(-1)
        del weights
        yield place, softmax
        del softmax  # free it before the next chunk is computed


def chunks(shape: tuple[int, int, int, int]) -> list[slice]:
    """Returns the slices of rows whose parts of a map (B, H, N, M) have at most `CHUNK` elements, or one row.

    >>> chunks((1, 1, 3, CHUNK // 2))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    batch, heads, count, columns = shape
    step = max(1, CHUNK // max(1, batch * heads * columns))
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def keys(q: Tensor, k: Tensor) -> Tensor:
    """Returns the keys of all heads of q, (B·H, M, d), contiguous, computed once for all chunks of rows.

    >>> keys(torch.zeros(1, 4, 3, 1), torch.tensor([1.0, 2.0]).view(1, 2, 1, 1)).flatten().tolist()
    [1.0, 1.0, 2.0, 2.0]
    """
    groups = q.shape[1] // k.shape[1]  # grouped queries share a key head
    return full(k if groups == 1 else k.repeat_interleave(groups, 1)).flatten(0, 1)


def logits(q: Tensor, keys: Tensor, scale: float, bias: Tensor | None, place: slice) -> Tensor:
    """Returns q kᵀ · scale + bias for some rows: (B, H, n, M).

    Args:
        q: (B, H, N, d).
        keys: (B·H, M, d), from `keys`.
        scale: the factor on q kᵀ.
        bias: added to the logits, broadcastable to (B, H, N, M).
        place: the slice of the rows.

    >>> logits(torch.ones(1, 1, 2, 3), torch.ones(1, 1, 3), 2.0, torch.ones(1, 1), slice(1, 2)).tolist()
    [[[[7.0]]]]
    """
    # Autocast is disabled: it would compute the product in bf16, and row sums would differ from 1 by 3e-3.
    with torch.autocast(q.device.type, enabled=False):
        q = full(q[:, :, place])
        found: Tensor = torch.baddbmm(q.new_empty(()), q.flatten(0, 1), keys.mT, beta=0, alpha=scale)
        found = found.unflatten(0, q.shape[:2])
        if bias is not None:
            found = found + full(bias if bias.shape[-2] == 1 else bias[..., place, :])
        return found


def full(x: Tensor) -> Tensor:
    """Returns a tensor in float32, or float64 if it is.

    >>> full(torch.zeros(1, dtype=torch.float16)).dtype
    torch.float32
    """
    return x if x.dtype == torch.float64 else x.float()
