"""One attention call of a model: what went into it, its map, and statistics of the map that never hold it whole.

Shape legend: B batch (windows folded in), H heads, N query tokens, M key tokens, d head channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vitlab.core.anatomy import TokenLayout
from vitlab.core.errors import unknown

_CHUNK = 1 << 24  # elements of the map that exist at one time: 64 MiB in float32


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
        return self._rows(slice(None))

    def rows(self) -> Iterator[tuple[slice, Tensor]]:
        """The map in pieces of rows: (rows, (B, H, n, M)), so that it need not exist at once."""
        like = self.weights if self.weights is not None else self.q
        assert like is not None
        count = like.shape[-2]
        columns = self.weights.shape[-1] if self.weights is not None else self.k.shape[-2]  # type: ignore[union-attr]
        step = max(1, _CHUNK // max(1, like.shape[0] * like.shape[1] * columns))
        for start in range(0, count, step):
            piece = slice(start, min(start + step, count))
            yield piece, self._rows(piece)

    def statistics(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Statistics of the map, streamed: `entropy` (B, H, N) in nats, `received` (B, H, M), the mean over rows.

        >>> layout, zeros = TokenLayout((1, 4)), torch.zeros(1, 1, 4, 2)
        >>> call = AttentionCall("a block", layout, layout, q=zeros, k=zeros)
        >>> call.statistics(["entropy"])["entropy"].allclose(torch.tensor(4.0).log())
        True
        """
        wanted = list(names)
        for name in wanted:
            if name not in STATISTICS:
                raise unknown("attention statistic", name, STATISTICS)
        pieces: dict[str, list[Tensor]] = {name: [] for name in wanted}
        total = 0
        for _, weights in self.rows():
            total += weights.shape[-2]
            for name in wanted:
                pieces[name].append(STATISTICS[name](weights))
        return {
            name: torch.cat(p, -1) if name in _PER_ROW else torch.stack(p).sum(0) / total for name, p in pieces.items()
        }

    def _rows(self, rows: slice) -> Tensor:
        if self.weights is not None:
            return _full(self.weights[:, :, rows])
        assert self.q is not None and self.k is not None
        # Outside autocast: inside it the product would be bf16 again and rows would miss 1 by 3e-3.
        with torch.autocast(self.q.device.type, enabled=False):
            q, k = _full(self.q[:, :, rows]), _full(self.k)
            if k.shape[1] != q.shape[1]:  # grouped queries share a key head
                k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
            logits = (q * self.scale) @ k.mT
            if self.bias is not None:
                logits = logits + _full(self.bias if self.bias.shape[-2] == 1 else self.bias[..., rows, :])
            return logits.softmax(-1)


def entropy(weights: Tensor) -> Tensor:
    """Entropy of each row in nats, −Σ a log a (CB, Sec. 3.1); its bound is log M.

    Args:
        weights: (..., M), rows that sum to 1.

    Returns:
        (...)

    >>> entropy(torch.tensor([0.5, 0.5, 0.0])).item() == torch.tensor(2.0).log().item()
    True
    """
    return -torch.xlogy(weights, weights).sum(-1)


STATISTICS: dict[str, Callable[[Tensor], Tensor]] = {"entropy": entropy, "received": lambda weights: weights.sum(-2)}
_PER_ROW = {"entropy"}


def _full(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
