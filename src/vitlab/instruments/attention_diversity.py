"""Attention diversity: similarity of heads and of rows, and locality of each head (TAPADL Fig. 4).

    heads   cos(A_h, A_g) of the maps of two heads as vectors (Sec. 4.1.2: 0.63 for FAN-B, 0.27 with TAP and ADL)
    rows    (1/N) Σ_i cos(A_i, Ā), Ā = (1/N) Σ_i A_i, the quantity that the diversification loss reduces (Eqs. 1 and 2)
    local   Σ_j a_ij over j = i, and over the 3×3 neighbourhood of i

Shape legend: B batch, T windows, H heads, N query tokens, M key tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block, TokenLayout
from vitlab.core.bounds import Weight
from vitlab.core.measurement import Card, Measurement
from vitlab.instruments.shared.one_pass import Result, observe, table
from vitlab.instruments.shared.per_image_sums import RowSumObserver, flatten_per_image, split_windows
from vitlab.instruments.shared.token_positions import cells_apart
from vitlab.recording.attention_call import Rows

CARD = Card(
    title="Likeness of heads and of rows, and the mass near the diagonal, by layer and head",
    paper="TAPADL Fig. 4, Sec. 4.1.2",
    cost="one forward",
    inputs="images",
    passes="shared",
    needs=("attention",),
)

Form = Literal["paper", "released"]
Heads = Literal["each", "mean"]
_TINY = 1e-8  # a row without entries above the threshold counts as 0, as in the diversification loss


def head_similarity(gram: Tensor) -> Tensor:
    """Cosine similarity of every pair of heads from the inner products of their maps.

    Args:
        gram: (..., H, H), Σ_ij of the product of two maps.

    Returns:
        (..., H, H)

    >>> head_similarity(torch.tensor([[1.0, 0.0], [0.0, 4.0]]))
    tensor([[1., 0.],
            [0., 1.]])
    """
    norms = gram.diagonal(dim1=-2, dim2=-1).sqrt().clamp_min(_TINY)
    return gram / norms[..., None] / norms[..., None, :]


def unit_rows(weights: Tensor) -> Tensor:
    """Σ_i A_i / |A_i|, the sum of the rows scaled to length 1, as used by `row_similarity`.

    Args:
        weights: (..., N, M)

    Returns:
        (..., M)

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
    tensor([0.6000, 1.8000])
    """
    inverse = torch.linalg.vector_norm(weights, dim=-1).clamp_min(_TINY).reciprocal()
    total: Tensor = inverse[..., None, :] @ weights
    return total[..., 0, :]


def row_similarity(total: Tensor, units: Tensor, rows: int | Tensor) -> Tensor:
    """(1/N) Σ_i cos(A_i, Ā) = (Σ_i A_i / |A_i|) · Ā / (N |Ā|).

    Args:
        total: (..., M), the sum of the rows.
        units: (..., M), the result of `unit_rows`.
        rows: N.

    Returns:
        (...): 1 if all rows are equal, 1/√N if they are orthogonal and have equal norms.

    >>> [row_similarity(rows.sum(0), unit_rows(rows), 4) for rows in (torch.eye(4), torch.full((4, 4), 0.25))]
    [tensor(0.5000), tensor(1.)]
    """
    length: Tensor = torch.linalg.vector_norm(total, dim=-1).clamp_min(_TINY)
    return (total * units).sum(-1) / length / rows


class Accumulator(RowSumObserver):
    """Accumulates inner products of heads, sums of rows and the mass near the diagonal."""

    kind = "attention_diversity"

    def __init__(self, tau: float = 0.0, form: Form = "paper", heads: Heads = "each") -> None:
        self.settings = {"tau": tau, "form": form, "heads": heads}
        self._tau, self._form, self._heads = tau, form, heads
        self._near: dict[tuple[TokenLayout, TokenLayout], Tensor | None] = {}

    def begin(self, anatomy: Anatomy) -> None:
        """Compute the masks of the token itself and of its neighbourhood for every map shape."""
        super().begin(anatomy)
        for layouts in map(_layouts, self.blocks):
            if layouts not in self._near:
                known = cells_apart(*layouts)
                apart = None if known is None else known.numpy()  # torch would start all its threads
                self._near[layouts] = None if apart is None else torch.from_numpy(np.stack((apart == 0, apart <= 1)))

    def sums(self, block: Block, rows: Rows) -> tuple[Tensor, ...]:
        """-> number of rows (B·T, 1), gram (B, H, H), sums of rows and of unit rows (B·T, H, M), two masses (B, H)."""
        if self._heads == "mean":
            rows = Rows(rows.place, rows.weights.mean(1, keepdim=True))
        windows, weights = _layouts(block)[0].windows, rows.weights
        near = self._near[_layouts(block)]
        kept = self._threshold(weights)
        flat = flatten_per_image(kept, windows)
        count = weights.new_full((len(weights), 1), weights.shape[-2])
        total = rows.received if self._tau == 0 or self._form == "released" else kept.sum(-2)
        sums = (count, flat @ flat.mT, total, unit_rows(kept))
        if near is None:
            return sums
        near = self._near[_layouts(block)] = near.to(weights)
        all_weights = flat if self._tau == 0 else flatten_per_image(weights, windows)
        # One product per mask: a matrix of two columns takes seven times as long.
        return *sums, *(all_weights @ mask[:, rows.place].flatten() for mask in near)

    def _threshold(self, weights: Tensor) -> Tensor:
        """Set entries below the threshold to 0; the released code also removes entries equal to it."""
        if self._tau == 0:
            return weights
        threshold = self._tau / weights.shape[-1]
        return weights * (weights >= threshold if self._form == "paper" else weights > threshold)

    def values(self, block: Block, *sums: Tensor) -> Tensor:
        """-> (B, H, 3 + H): mass on itself, mass on the neighbourhood, row similarity, similarity to each head."""
        count, gram, total, units, *masses = sums
        queries = _layouts(block)[0]
        if self._form == "released":
            total = self._threshold(total / count[..., None])
        rows = split_windows(row_similarity(total, units, count), queries.windows).mean(1)
        masses = [mass / (queries.tokens - queries.prefix) for mass in masses] or [torch.zeros_like(rows)] * 2
        return torch.cat((torch.stack((*masses, rows), -1), head_similarity(gram)), -1)

    def result(self, anatomy: Anatomy) -> Result:
        """Means over images."""
        layers = [values.mean(0) for values in self.per_image()]  # (H, 3 + H)
        width = max(len(layer) for layer in layers)
        known = np.array([np.nan if self._near[_layouts(block)] is None else 1.0 for block in self.blocks])[:, None]
        values = {
            "head_similarity": np.array([_between(layer[:, 3:]) for layer in layers]),
            "head_pairs": np.stack([_square(layer[:, 3:], width) for layer in layers]),
            "row_similarity": table([layer[:, 2] for layer in layers]),
            "self_mass": known * table([layer[:, 0] for layer in layers]),
            "neighbourhood_mass": known * table([layer[:, 1] for layer in layers]),
        }
        dims = {name: ("layer", "head", "other head")[: value.ndim] for name, value in values.items()}
        return Result(values, dims, {**self.axes(width), "other head": tuple(range(width))})


def measure(
    model: nn.Module, batches: Iterable[Any], *, tau: Weight = 0.0, form: Form = "paper", heads: Heads = "each"
) -> Measurement:
    """Similarity of heads and of rows, and the mass near the diagonal, by layer and head.

    Similarities use all rows and columns, prefix tokens included; masses use only spatial tokens. For the similarity of
    heads, a windowed map is one vector over all windows. Its rows are compared with the mean row of their window.

    Args:
        model: a model with attention maps; it runs in evaluation mode.
        batches: yields (images, targets) or images.
        tau: entries below tau / M are set to 0 before similarities are computed, as in the loss (Eq. 1, where
            tau = 2). TAPADL states neither whether its 0.63 and 0.27 are thresholded nor how pairs are averaged; 0 and
            the mean over pairs are our choice.
        form: for tau > 0, `"paper"` or `"released"`. In the released code the mean row is computed before the threshold
            and then thresholded itself, and an entry must be larger than tau / M.
        heads: `"each"` treats each head as one map; `"mean"` averages the heads first, as the released loss does. With
            `"mean"` and tau = 2, `row_similarity` is the quantity that ADL reduces during training.

    Returns:
        Means over images: `head_similarity` (layer), the mean over pairs of different heads, NaN for a single head;
        `head_pairs` (layer, head, other head); `row_similarity` (layer, head); `self_mass` and `neighbourhood_mass`
        (layer, head), the mass on the token itself and on its 3×3 neighbourhood, itself included, in cells of the
        coarser grid if the grids of queries and keys differ; NaN where windows are padded.
    """
    return observe(model, batches, [Accumulator(tau, form, heads)])[0]


def _between(similarity: np.ndarray) -> float:
    heads = len(similarity)
    return float("nan") if heads == 1 else float((similarity.sum() - similarity.trace()) / (heads * (heads - 1)))


def _square(similarity: np.ndarray, width: int) -> np.ndarray:
    missing = width - len(similarity)
    return np.pad(similarity, (0, missing), constant_values=np.nan)


def _layouts(block: Block) -> tuple[TokenLayout, TokenLayout]:
    queries, keys = block.mixer.queries, block.mixer.keys
    assert queries is not None and keys is not None
    return queries, keys
