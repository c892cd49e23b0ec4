"""Attention entropy: how dense the rows of the attention map are (CB Figs. 4, 7a, S12).

    H(a) = −Σ_j a_j log a_j   in nats, at most log N_kv, reached by uniform attention

Shape legend: B batch, H heads, N query tokens, M key tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.attention import AttentionCall, entropy
from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.measurement import Card, Measurement
from vitlab.instruments.observation import Observer, Result, attention_blocks, observe, table
from vitlab.instruments.row_sums import refuse_nan

CARD = Card(
    title="Entropy of attention rows, by layer and head",
    paper="CB Figs. 4, 7a, S12",
    cost="one forward",
    needs=("attention",),
)


def bound(keys: int) -> float:
    """The largest entropy that a row over that many keys can have.

    >>> round(bound(197), 3)
    5.283
    """
    return math.log(keys)


def quantile(rows: Tensor, q: float) -> Tensor:
    """The q-quantile along the last axis as numpy's, on the rows' own device; torch's refuses 16 million elements.

    Args:
        rows: (..., R).

    Returns:
        (...) in float64.

    >>> quantile(torch.tensor([4.0, 1.0, 3.0, 2.0]), 0.5)
    tensor(2.5000, dtype=torch.float64)
    """
    place = q * (rows.shape[-1] - 1)
    below = rows.kthvalue(math.floor(place) + 1).values.double()
    above = rows.kthvalue(math.ceil(place) + 1).values.double()
    return below + (above - below) * (place - math.floor(place))


class Watch(Observer):
    """Keeps the entropy of every row."""

    kind = "attention_entropy"
    wants_attention = True

    def begin(self, anatomy: Anatomy) -> None:
        """Room for each block that has a map."""
        self._blocks = attention_blocks(anatomy, self.kind)
        self._entropies: dict[str, list[Tensor]] = {block.name: [] for block in self._blocks}
        self._class_rows: dict[str, list[Tensor]] = {block.name: [] for block in self._blocks}
        self._keys: dict[str, int] = {}

    def rows(self, block: Block, call: AttentionCall, rows: slice, weights: Tensor) -> None:
        """(B, H, n, M) -> entropies (H, B·n)."""
        if block.name not in self._entropies:
            return
        found = entropy(weights)
        self._keys[block.name] = weights.shape[-1]
        self._entropies[block.name].append(found.transpose(0, 1).flatten(1))
        if rows.start == 0 and call.queries.prefix:
            self._class_rows[block.name].append(found[:, :, 0])

    def result(self, anatomy: Anatomy) -> Result:
        """Mean and tails by layer and head."""
        rows = [torch.cat(self._entropies[block.name], 1) for block in self._blocks]
        for block, row in zip(self._blocks, rows, strict=True):
            refuse_nan(self.kind, block.name, row)
        limits = np.array([bound(self._keys[block.name]) for block in self._blocks])
        mean = table([row.mean(1) for row in rows])
        values = {
            "mean": mean,
            "p15": table([quantile(row, 0.15) for row in rows]),
            "p85": table([quantile(row, 0.85) for row in rows]),
            "class_row": table(
                [self._class_row(block, len(row)) for block, row in zip(self._blocks, rows, strict=True)]
            ),
            "normalised": mean / limits[:, None],
            "bound": limits,
        }
        dims = {name: ("layer", "head")[: value.ndim] for name, value in values.items()}
        axes = {"layer": tuple(block.name for block in self._blocks), "head": tuple(range(mean.shape[1]))}
        return Result(values, dims, axes)

    def _class_row(self, block: Block, heads: int) -> Tensor:
        found = self._class_rows[block.name]
        return torch.cat(found).mean(0) if found else torch.full((heads,), float("nan"))


def measure(model: nn.Module, batches: Iterable[Any]) -> Measurement:
    """Entropy of every attention row, summarised by layer and head.

    Args:
        model: a model with attention maps; it runs in evaluation mode.
        batches: yields (images, targets) or images.

    Returns:
        `mean`, `p15`, `p85` (layer, head) over images and query tokens, `class_row` (layer, head) of the first prefix
        token (NaN where there is none), `normalised` = mean / bound, and `bound` (layer). The paper's text speaks of
        the top 15 %, its figure of the 15th percentile: both tails are given. Layers with fewer heads are filled with
        NaN.
    """
    return observe(model, batches, [Watch()])[0]
