"""One attention call of a model: what went into it, its map, and statistics of the map that never hold it whole.

Shape legend: B batch (windows folded in), H heads, N query tokens, M key tokens, d head channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vitlab.core.anatomy import TokenLayout
from vitlab.core.errors import unknown
from vitlab.kernels import twin_products

_CHUNK = 1 << 25  # elements of the map that exist at one time: 128 MiB in float32, all of DeiT-Ti's at batch 256


@dataclass(frozen=True)
class Rows:
    """Some rows of an attention map, and what several instruments want of them, which is made once.

    Args:
        place: which rows.
        weights: (B, H, n, M).
    """

    place: slice
    weights: Tensor

    @cached_property
    def received(self) -> Tensor:
        """What each key receives from these rows: (B, H, M)."""
        return self.weights.sum(-2)


@dataclass(frozen=True)
class AttentionCall:
    """What one block's attention was given: softmax(q kᵀ · scale + bias), or the weights that the model itself made.

    Args:
        block: name of the block.
        queries, keys: how the rows and the columns of the map lie.
        q: (B, H, N, d), and k: (B, H, M, d); None where `weights` is given.
        scale: the factor on q kᵀ.
        bias: what is added to the logits, broadcastable to (B, H, N, M); minus infinity where a key is masked.
        weights: (B, H, N, M), where the model has its own softmax.
    """

    block: str
    queries: TokenLayout
    keys: TokenLayout
    q: Tensor | None = None
    k: Tensor | None = None
    scale: float = 1.0
    bias: Tensor | None = None
    weights: Tensor | None = None

    def map(self) -> Tensor:
        """The whole map, (B, H, N, M), in float32 (or float64), every row of which sums to 1."""
        if self.weights is not None:
            return _full(self.weights)
        return self._logits(slice(None), self._keys()).softmax(-1)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, N, M) of the map."""
        like = self.weights if self.weights is not None else self.q
        assert like is not None
        batch, heads, rows, _ = like.shape
        return batch, heads, rows, like.shape[-1] if self.k is None else self.k.shape[-2]

    def rows(self) -> Iterator[Rows]:
        """The map in pieces, so that it need not exist at once."""
        batch, heads, count, columns = self.shape
        step = max(1, _CHUNK // max(1, batch * heads * columns))
        pieces = [slice(start, min(start + step, count)) for start in range(0, count, step)]
        if self.weights is not None:
            yield from (Rows(piece, _full(self.weights[:, :, piece])) for piece in pieces)
            return
        keys = self._keys()
        for piece in pieces:
            logits = self._logits(piece, keys)
            if piece is pieces[-1]:
                del keys
            rows = Rows(piece, logits.softmax(-1))
            del logits
            yield rows
            del rows  # before the next piece is made

    def statistics(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Statistics of the map, streamed.

        `entropy` (B, H, N) in nats; `received` (B, H, M), the mean over rows; `twins` (3, B/2, H, N), the inner
        products between the rows of the batch's two halves, made by a kernel where there is one.

        >>> layout, zeros = TokenLayout((1, 4)), torch.zeros(1, 1, 4, 2)
        >>> call = AttentionCall("a block", layout, layout, q=zeros, k=zeros)
        >>> call.statistics(["entropy"])["entropy"].allclose(torch.tensor(4.0).log())
        True
        """
        wanted = list(names)
        for name in wanted:
            if name not in STATISTICS:
                raise unknown("attention statistic", name, STATISTICS)
        found = {}
        if "twins" in wanted and self.q is not None and self.k is not None and twin_products.supports(self.q):
            twins = twin_products.fused(self.q, self.k, self.scale, self.bias)
            if twins is not None:
                found["twins"] = twins
                wanted.remove("twins")
        if not wanted:
            return found
        pieces: dict[str, list[Tensor]] = {name: [] for name in wanted}
        total = 0
        for rows in self.rows():
            total += rows.weights.shape[-2]
            for name in wanted:
                pieces[name].append(STATISTICS[name](rows.weights))
        return found | {
            name: torch.cat(p, -1) if name in _PER_ROW else torch.stack(p).sum(0) / total for name, p in pieces.items()
        }

    def _keys(self) -> Tensor:
        """(B·H, M, d), in one piece of memory: made once for all pieces of rows."""
        assert self.q is not None and self.k is not None
        groups = self.q.shape[1] // self.k.shape[1]  # grouped queries share a key head
        k = self.k if groups == 1 else self.k.repeat_interleave(groups, 1)
        return _full(k).flatten(0, 1)

    def _logits(self, rows: slice, keys: Tensor) -> Tensor:
        assert self.q is not None
        # Outside autocast: inside it the product would be bf16 again and rows would miss 1 by 3e-3.
        with torch.autocast(self.q.device.type, enabled=False):
            q = _full(self.q[:, :, rows])
            logits = torch.baddbmm(q.new_empty(()), q.flatten(0, 1), keys.mT, beta=0, alpha=self.scale)
            logits = logits.unflatten(0, q.shape[:2])
            if self.bias is not None:
                logits = logits + _full(self.bias if self.bias.shape[-2] == 1 else self.bias[..., rows, :])
            return logits


def entropy(weights: Tensor) -> Tensor:
    """Entropy of each row in nats, −Σ a log a (CB, Sec. 3.1); its bound is log M.

    Args:
        weights: (..., M), rows that sum to 1.

    Returns:
        (...)

    >>> entropy(torch.tensor([0.5, 0.5, 0.0])).item() == torch.tensor(2.0).log().item()
    True
    """
    return torch.special.entr(weights).sum(-1)


STATISTICS: dict[str, Callable[[Tensor], Tensor]] = {
    "entropy": entropy,
    "received": lambda weights: weights.sum(-2),
    "twins": twin_products.plain,
}
_PER_ROW = {"entropy", "twins"}


def _full(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
