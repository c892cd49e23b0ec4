"""Attention entropy: entropy of the rows of the attention map (CB Figs. 4, 7a, S12).

    H(a) = −Σ_j a_j log a_j   in nats, at most log N_kv, the entropy of uniform attention

Shape legend: B batch, H heads, N query tokens, M key tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.measurement import Card, Measurement
from vitlab.instruments.shared.device_buffer import DeviceBuffer, fetch
from vitlab.instruments.shared.one_pass import Observer, Result, attention_blocks, observe, table
from vitlab.instruments.shared.per_image_sums import require_finite
from vitlab.kernels.attention_statistics import Wanted
from vitlab.recording.attention_call import AttentionCall, Rows, entropy

CARD = Card(
    title="Entropy of attention rows, by layer and head",
    paper="CB Figs. 4, 7a, S12",
    cost="one forward",
    inputs="images",
    passes="shared",
    needs=("attention",),
)


#: Number of bins of the stored histograms, of equal width between 0 and the bound; used to pool parts of the images.
BINS = 512

#: Percentiles of pooled parts are computed from the sum of their histograms, to within one bin (1/512 of the bound).
_POOLING = {
    "bound": ("constant",),
    "row_histogram": ("sum",),
    "p15": ("quantile_15", "row_histogram", "bound"),
    "p85": ("quantile_85", "row_histogram", "bound"),
    "pooled_p15": ("quantile_15_of_all", "row_histogram", "bound"),
    "pooled_p85": ("quantile_85_of_all", "row_histogram", "bound"),
}

_SORTED = 1 << 22  # elements per sort: a sort needs several times the memory of its input


def bound(keys: int) -> float:
    """Maximum entropy of a row over this number of keys.

    >>> round(bound(197), 3)
    5.283
    """
    return math.log(keys)


def quantiles(ordered: Tensor, at: Sequence[float]) -> list[Tensor]:
    """Quantiles along the last axis, as in NumPy, on the device of the rows.

    `torch.quantile` is limited to 2²⁴ elements. All quantiles and the histogram use one sort: on a GPU,
    `torch.kthvalue` takes ten times as long.

    Args:
        ordered: (..., R), sorted along the last axis.
        at: quantile levels between 0 and 1.

    Returns:
        One float64 tensor (...) per level.

    >>> quantiles(torch.tensor([1.0, 2.0, 3.0, 4.0]), [0.5, 1.0])
    [tensor(2.5000, dtype=torch.float64), tensor(4., dtype=torch.float64)]
    """
    places = [q * (ordered.shape[-1] - 1) for q in at]
    ends = torch.stack([ordered[..., whole(place)] for whole in (math.floor, math.ceil) for place in places]).double()
    return [torch.lerp(low, high, place % 1) for low, high, place in zip(*ends.chunk(2), places, strict=True)]


def histogram(ordered: Tensor, top: float, bins: int = BINS) -> Tensor:
    """Counts in bins of equal width between 0 and `top`: (H, R), sorted along the last axis -> (H, bins).

    The position of each edge among the sorted rows gives the counts without atomic additions. The first and the last
    bin also count what lies outside.

    >>> histogram(torch.tensor([[0.1, 0.9, 2.0]]), 2.0, 4).tolist()
    [[1, 1, 0, 1]]
    """
    edges = torch.arange(1, bins, device=ordered.device, dtype=ordered.dtype) * (top / bins)
    below = torch.searchsorted(ordered, edges.expand(len(ordered), -1).contiguous())
    ends = (below.new_zeros(len(below), 1), below.new_full((len(below), 1), ordered.shape[-1]))
    return torch.cat((ends[0], below, ends[1]), 1).diff(dim=1)


class Accumulator(Observer):
    """Stores the entropy of every row."""

    kind = "attention_entropy"
    attention = "rows"

    def begin(self, anatomy: Anatomy) -> None:
        """Create buffers for the blocks that have a map."""
        self._blocks = attention_blocks(anatomy, self.kind)
        self._entropies = DeviceBuffer(block.name for block in self._blocks)
        self._class_rows = DeviceBuffer(block.name for block in self._blocks)
        self._keys: dict[str, int] = {}
        self._device = torch.device("cpu")

    def rows(self, block: Block, call: AttentionCall, rows: Rows) -> None:
        """(B, H, n, M) -> entropies (B, H, n)."""
        if block.name in self._entropies:
            self._put(block, call, entropy(rows.weights), rows.place.start == 0)

    def wanted(self, block: Block, call: AttentionCall) -> Wanted:
        """The entropy of each row."""
        return {"entropy": None}

    def streamed(self, block: Block, call: AttentionCall, statistics: Mapping[str, Tensor]) -> None:
        """Store the entropies (B, H, N)."""
        if block.name in self._entropies:
            self._put(block, call, statistics["entropy"], True)

    def _put(self, block: Block, call: AttentionCall, entropies: Tensor, first: bool) -> None:
        self._keys[block.name], self._device = call.shape[-1], entropies.device
        self._entropies.put(block.name, entropies)
        if first and call.queries.prefix:
            self._class_rows.put(block.name, entropies[:, :, 0].clone())

    def result(self, anatomy: Anatomy) -> Result:
        """Mean and percentiles by layer and head, and percentiles over all heads."""
        summaries = [self._summary(block) for block in self._blocks]
        means, low, high, ends, counts = (fetch(each) for each in zip(*summaries, strict=True))
        for block, each in zip(self._blocks, means, strict=True):
            require_finite(self.kind, block.name, each)
        limits = np.array([bound(self._keys[block.name]) for block in self._blocks])
        mean = table(means)
        heads = mean.shape[1]
        values = {
            "mean": mean,
            "p15": table(low),
            "p85": table(high),
            "pooled_p15": np.array([each[0] for each in ends]),
            "pooled_p85": np.array([each[1] for each in ends]),
            "class_row": table(
                [self._class_row(block, len(each)) for block, each in zip(self._blocks, means, strict=True)]
            ),
            "normalised": mean / limits[:, None],
            "bound": limits,
            "row_histogram": np.stack([np.pad(each, ((0, heads - len(each)), (0, 0))) for each in counts]),
        }
        dims = {name: ("layer", "head", "bin")[: value.ndim] for name, value in values.items()}
        axes = {"layer": tuple(block.name for block in self._blocks), "head": tuple(range(heads))}
        return Result(values, dims, axes, _POOLING)

    def _summary(self, block: Block) -> list[Tensor]:
        """For a layer: mean, 15th and 85th percentile by head (H,), both over all heads (2,), and counts (H, BINS)."""
        pieces = [piece.to(self._device, non_blocking=True) for piece in self._entropies.get(block.name)]
        rows = torch.cat([piece.transpose(0, 1).flatten(1) for piece in pieces], 1)  # (H, R)
        tails, counts = [], []
        for heads in torch.split(rows, max(1, _SORTED // rows.shape[1])):
            ordered = heads.sort(-1).values
            tails.append(quantiles(ordered, (0.15, 0.85)))
            counts.append(histogram(ordered, bound(self._keys[block.name])))
            del ordered  # free it before the next sort
        low, high = map(torch.cat, zip(*tails, strict=True))
        ends = torch.stack(quantiles(rows.flatten().sort().values, (0.15, 0.85)))
        return [rows.mean(1), low, high, ends, torch.cat(counts)]

    def _class_row(self, block: Block, heads: int) -> np.ndarray:
        rows = self._class_rows.get(block.name)
        return np.concatenate(fetch(rows)).mean(0) if rows else np.full(heads, np.nan)


def measure(model: nn.Module, batches: Iterable[Any]) -> Measurement:
    """Entropy of the attention rows, summarised by layer and head.

    Args:
        model: a model with attention maps; it runs in evaluation mode.
        batches: yields (images, targets) or images.

    Returns:
        `mean`, `p15`, `p85` (layer, head) over images and query tokens; `pooled_p15`, `pooled_p85` (layer), the same
        percentiles also over heads, which is the band of CB Fig. 4; `class_row` (layer, head) of the first prefix
        token (NaN if there is none), `normalised` = mean / bound, `bound` (layer), and `row_histogram` (layer, head,
        bin), the number of rows in each of `BINS` bins between 0 and the bound. The paper's text refers to the top
        15 %, its figure to the 15th percentile: both percentiles are returned. Of parts of the images (`--repeats`),
        percentiles are computed from the histogram, to within one of its bins. Layers with fewer heads are padded with
        NaN.
    """
    return observe(model, batches, [Accumulator()])[0]
