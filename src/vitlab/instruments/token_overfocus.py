"""Token overfocus: share of attention received by a few tokens, the vertical lines of a map (TAPADL Fig. 1).

    r_j = (1/N) Σ_i a_ij,   Σ_j r_j = 1;   top(s) = the sum of the largest s · M of the r_j

Shape legend: B batch, T windows, H heads, N query tokens, M key tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.bounds import Length, PositiveShare
from vitlab.core.measurement import Card, Measurement
from vitlab.instruments.shared.one_pass import Result, observe, table
from vitlab.instruments.shared.per_image_sums import RowSumObserver, flatten_per_image
from vitlab.kernels.attention_statistics import Wanted
from vitlab.recording.attention_call import AttentionCall, Rows

CARD = Card(
    title="Share of attention that the most attended tokens receive, by layer and head",
    paper="TAPADL Fig. 1, Sec. 3.1",
    cost="one forward",
    inputs="images",
    passes="shared",
    needs=("attention",),
    higher_is_better=False,
)


def top_share(largest: Tensor, share: float) -> Tensor:
    """Fraction of all attention that the most attended `share` of the tokens receives.

    The number of tokens may be fractional (5 % of 197 is 9.85), so that uniform attention gives exactly `share`.

    Args:
        largest: (..., M), the attention that tokens receive, in descending order.
        share: between 0 and 1.

    Returns:
        (...)

    >>> top_share(torch.tensor([0.7, 0.1, 0.1, 0.1]), 0.25)
    tensor(0.7000)
    >>> top_share(torch.full((197,), 1 / 197), 0.05)
    tensor(0.0500)
    """
    count = share * largest.shape[-1]
    whole = int(count)
    part = (count - whole) * largest[..., whole] if whole < largest.shape[-1] else 0.0
    return (largest[..., :whole].sum(-1) + part) / largest.sum(-1)


def gini(largest: Tensor) -> Tensor:
    """Gini coefficient of the attention received: 0 if all tokens receive the same, 1 − 1/M if one receives everything.

    G = Σ_j (M + 1 − 2j) r_(j) / (M Σ_j r_j), r_(1) the largest.

    Args:
        largest: (..., M), the attention that tokens receive, in descending order.

    Returns:
        (...)

    >>> gini(torch.tensor([1.0, 0.0, 0.0, 0.0])), gini(torch.ones(4))
    (tensor(0.7500), tensor(0.))
    """
    count = largest.shape[-1]
    rank = torch.arange(count - 1, -count, -2, dtype=largest.dtype, device=largest.device)  # M + 1 − 2j for j = 1 … M
    return largest @ rank / (count * largest.sum(-1))


class Accumulator(RowSumObserver):
    """Accumulates the attention that each token receives, per image."""

    kind = "token_overfocus"

    def __init__(self, shares: Sequence[float] = (0.05, 0.1)) -> None:
        self.settings = {"shares": list(shares)}
        self._shares = tuple(shares)

    def sums(self, block: Block, rows: Rows) -> tuple[Tensor, ...]:
        """-> (B·T, H, M)."""
        return (rows.received,)

    def wanted(self, block: Block, call: AttentionCall) -> Wanted:
        """The sum over rows."""
        return {"received": None}

    def totals(self, block: Block, statistics: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """-> (B·T, H, M)."""
        return (statistics["received"],)

    def values(self, block: Block, *sums: Tensor) -> Tensor:
        """-> (B, H + 1, k): columns of all windows concatenated; the last row is for the map averaged over heads."""
        assert block.mixer.keys is not None
        received = flatten_per_image(sums[0], block.mixer.keys.windows)
        received = torch.cat((received, received.mean(1, keepdim=True)), 1)
        largest = (received / received.sum(-1, keepdim=True)).sort(-1, descending=True).values
        tops = [top_share(largest, share) for share in self._shares]
        return torch.stack([largest[..., 0], gini(largest), *tops], -1)

    def result(self, anatomy: Anatomy) -> Result:
        """Means over images."""
        layers = [values.mean(0) for values in self.per_image()]  # (H + 1, k)
        columns = [table([layer[:-1, i] for layer in layers]) for i in range(2 + len(self._shares))]
        values = {
            "top1": columns[0],
            "gini": columns[1],
            "top": np.stack(columns[2:]),
            "top1_of_mean": np.array([float(layer[-1, 0]) for layer in layers]),
            "gini_of_mean": np.array([float(layer[-1, 1]) for layer in layers]),
        }
        dims = {name: ("layer", "head")[: value.ndim] for name, value in values.items()}
        return Result(
            values,
            {**dims, "top": ("share", "layer", "head")},
            {**self.axes(columns[0].shape[1]), "share": self._shares},
        )


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    shares: Annotated[Sequence[PositiveShare], Length(1, 100, distinct=True)] = (0.05, 0.1),
) -> Measurement:
    """Inequality of the attention received by tokens, by layer and head.

    All rows and columns are used, prefix tokens included; the columns of all windows of an image are compared.

    Args:
        model: a model with attention maps; it runs in evaluation mode.
        batches: yields (images, targets) or images.
        shares: fractions of the tokens for `top`.

    Returns:
        Means over images: `top1` (layer, head), the fraction of attention that the most attended token receives; `top`
        (share, layer, head), the fraction that the most attended share of the tokens receives; `gini` (layer, head).
        `top1_of_mean` and `gini_of_mean` (layer) use the map averaged over heads, which the paper shows.
    """
    return observe(model, batches, [Accumulator(shares)])[0]
