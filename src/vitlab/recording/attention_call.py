"""One attention call of a model: its operands, its map, and statistics of the map that are computed in chunks of rows.

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
from vitlab.kernels import attention_rows, attention_statistics, twin_products


@dataclass(frozen=True)
class Rows:
    """A chunk of rows of an attention map, with cached quantities that several instruments share.

    Args:
        place: slice of the rows in the map.
        weights: (B, H, n, M).
    """

    place: slice
    weights: Tensor

    @cached_property
    def received(self) -> Tensor:
        """The sum over these rows of the weights on each key: (B, H, M)."""
        return self.weights.sum(-2)


@dataclass(frozen=True)
class AttentionCall:
    """The operands of one attention call: softmax(q kᵀ · scale + bias), or the weights where the model computes them.

    Args:
        block: name of the block.
        queries, keys: token layouts of the rows and of the columns of the map.
        q, k: (B, H, N, d) and (B, H, M, d); None where `weights` is given.
        scale: factor on q kᵀ.
        bias: added to the logits, broadcastable to (B, H, N, M); minus infinity where a key is masked.
        weights: (B, H, N, M), the output of the model's own softmax.
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
        """The full map, (B, H, N, M), in float32 (or float64). Each row sums to 1."""
        if self.weights is not None:
            return attention_rows.full(self.weights)
        assert self.q is not None and self.k is not None
        keys = attention_rows.keys(self.q, self.k)
        return attention_rows.logits(self.q, keys, self.scale, self.bias, slice(None)).softmax(-1)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, N, M) of the map."""
        like = self.weights if self.weights is not None else self.q
        assert like is not None
        batch, heads, rows, _ = like.shape
        return batch, heads, rows, like.shape[-1] if self.k is None else self.k.shape[-2]

    def rows(self) -> Iterator[Rows]:
        """Iterate over the map in chunks of rows, so that the full map is never in memory."""
        if self.weights is not None:
            for place in attention_rows.chunks(self.shape):
                yield Rows(place, attention_rows.full(self.weights[:, :, place]))
            return
        assert self.q is not None and self.k is not None
        for place, weights in attention_rows.rows(self.q, self.k, self.scale, self.bias):
            yield Rows(place, weights)
            del weights  # free it before the next chunk is computed

    def streamed(self, wanted: attention_statistics.Wanted) -> dict[str, Tensor] | None:
        """Statistics of the map by a kernel that stores no rows; None where it is not available.

        Args:
            wanted: as in `attention_statistics.fused`.
        """
        q, k = self.q, self.k
        if q is None or k is None or attention_statistics.missing(q, k):
            return None
        return attention_statistics.fused(q, k, self.scale, self.bias, wanted)

    def statistics(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Compute statistics of the map over chunks of rows.

        `entropy` (B, H, N) in nats; `received` (B, H, M), the mean over rows; `twins` (3, B/2, H, N), the inner
        products between the rows of the batch's two halves. Fused kernels compute them where they are supported.

        >>> layout, zeros = TokenLayout((1, 4)), torch.zeros(1, 1, 4, 2)
        >>> call = AttentionCall("a block", layout, layout, q=zeros, k=zeros)
        >>> call.statistics(["entropy"])["entropy"].allclose(torch.tensor(4.0).log())
        True
        """
        requested = list(names)
        for name in requested:
            if name not in STATISTICS:
                raise unknown("attention statistic", name, STATISTICS)
        result = {}
        twins = self._twins() if "twins" in requested else None
        if twins is not None:
            result["twins"] = twins
            requested.remove("twins")
        if not requested:
            return result
        streamed = self.streamed(dict.fromkeys(requested)) if set(requested) <= {"entropy", "received"} else None
        if streamed is not None:
            if "received" in streamed:
                streamed["received"] = streamed["received"] / self.shape[2]
            return result | streamed
        chunks: dict[str, list[Tensor]] = {name: [] for name in requested}
        total = 0
        for rows in self.rows():
            total += rows.weights.shape[-2]
            for name in requested:
                chunks[name].append(STATISTICS[name](rows.weights))
        return result | {
            name: torch.cat(p, -1) if name in _PER_ROW else torch.stack(p).sum(0) / total for name, p in chunks.items()
        }

    def _twins(self) -> Tensor | None:
        """The statistic `twins` by a kernel that stores no rows; None where it is not available."""
        if self.q is None or self.k is None or twin_products.missing(self.q):
            return None
        return twin_products.fused(self.q, self.k, self.scale, self.bias)


def entropy(weights: Tensor) -> Tensor:
    """Entropy of each row in nats, −Σ a log a (CB, Sec. 3.1); at most log M.

    Args:
        weights: (..., M), rows that sum to 1.

    Returns:
        (...)

    >>> entropy(torch.tensor([0.5, 0.5, 0.0])).item() == torch.tensor(2.0).log().item()
    True
    """
    entropy: Tensor = torch.special.entr(weights).sum(-1)
    return entropy


STATISTICS: dict[str, Callable[[Tensor], Tensor]] = {
    "entropy": entropy,
    "received": lambda weights: weights.sum(-2),
    "twins": twin_products.plain,
}
_PER_ROW = {"entropy", "twins"}
