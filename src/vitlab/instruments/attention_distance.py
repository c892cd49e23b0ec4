"""Attention distance: distance in the image between query and key, weighted by attention (CB Fig. 7b).

    dist = E_{i≠j} (a_ij ‖p_i − p_j‖₁)   over spatial tokens, p_i the normalised coordinate of token i

Shape legend: B batch, T windows, H heads, N query tokens, M key tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block, TokenLayout
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.instruments.shared.one_pass import Result, observe, table
from vitlab.instruments.shared.per_image_sums import RowSumObserver, flatten_per_image, split_windows
from vitlab.instruments.shared.token_positions import place_tokens
from vitlab.kernels.attention_statistics import Wanted, city_block
from vitlab.recording.attention_call import AttentionCall, Rows

CARD = Card(
    title="Distance over which tokens attend, by layer and head",
    paper="CB Fig. 7b",
    cost="one forward",
    inputs="images",
    passes="shared",
    needs=("attention",),
)

#: Pairs of tokens whose distances are kept in memory (16 MiB); distances of larger maps are computed for some rows.
_KEPT_PAIRS = 1 << 22


def total_distance(weights: Tensor, distance: Tensor, renormalise_from: int | None = None) -> Tensor:
    """Σ_ij a_ij d_ij over the rows i and keys j of the map of each image.

    Args:
        weights: (B·T, H, N, M), rows that sum to 1.
        distance: (T, N, M), 0 for prefix tokens.
        renormalise_from: index of the first spatial key; if given, each row is divided by its sum over spatial keys.

    Returns:
        (B, H)

    >>> row = torch.tensor([0.5, 0.25, 0.25]).reshape(1, 1, 1, 3)  # the class token has weight 0.5
    >>> total_distance(row, torch.tensor([[[0.0, 0.0, 1.0]]])).item()
    0.25
    >>> total_distance(row, torch.tensor([[[0.0, 0.0, 1.0]]]), renormalise_from=1).item()
    0.5
    """
    if renormalise_from is not None:
        spatial = weights[..., renormalise_from:].sum(-1, keepdim=True)
        weights = weights / spatial.clamp_min(torch.finfo(weights.dtype).tiny)
    return flatten_per_image(weights, len(distance)) @ distance.flatten()


def summed_distance(rows: Tensor, columns: Tensor) -> float:
    """Σ_ij |p_i − p_j|_1 over the queries i and keys j of each window, from sorted coordinates in O(N log N).

    Along an axis, Σ_j |x − y_j| = x (2k − M) + Σ_j y_j − 2 Σ_{j<k} y_j, where k keys lie below x.

    Args:
        rows, columns: positions (T, N, 2) and (T, M, 2).

    >>> summed_distance(torch.tensor([[[0.5, 0.25]]]), torch.tensor([[[0.0, 0.25], [1.0, 0.0]]]))
    1.25
    """
    x, y = rows.double().mT.contiguous(), columns.double().mT.sort(-1).values.contiguous()
    below = torch.searchsorted(y, x)
    sums = torch.nn.functional.pad(y.cumsum(-1), (1, 0))
    each = x * (2 * below - y.shape[-1]) + sums[..., -1:] - 2 * sums.gather(-1, below)
    return float(each.sum())


def pairs(queries: TokenLayout, keys: TokenLayout) -> int:
    """Number of pairs i ≠ j of spatial tokens in the full map; in a reduced map, no key equals the query.

    >>> pairs(TokenLayout((14, 14), prefix=1), TokenLayout((14, 14), prefix=1)) == 196 * 195
    True
    """
    rows, columns = (layout.tokens - layout.prefix for layout in (queries, keys))
    return rows * columns - (rows if queries.grid == keys.grid else 0)


class Accumulator(RowSumObserver):
    """Accumulates Σ_ij a_ij d_ij of every map."""

    kind = "attention_distance"

    def __init__(self, renormalise: bool = False) -> None:
        self.settings = {"renormalise": renormalise}
        self._renormalise = renormalise
        self._places: dict[tuple[TokenLayout, TokenLayout], tuple[Tensor, Tensor]] = {}
        self._distances: dict[tuple[TokenLayout, TokenLayout], Tensor] = {}  # of all pairs, where they are few

    def begin(self, anatomy: Anatomy) -> None:
        """Compute the positions for every map shape."""
        super().begin(anatomy)
        for layouts in map(_layouts, self.blocks):
            places = place_tokens(*layouts) if layouts not in self._places else None
            if places is not None:
                self._places[layouts] = places
        if not self._places:
            raise VitlabError(
                f"{self.kind} needs token positions, which are unknown: all windows are padded "
                "(use an image size that they tile), or the model shuffles its patches"
            )

    def sums(self, block: Block, rows: Rows) -> tuple[Tensor, ...]:
        """-> (B, H)."""
        layouts, weights, place = _layouts(block), rows.weights, rows.place
        if layouts not in self._places:
            return (weights.sum((-1, -2)),)  # detects NaN weights; `result` sets the layer to NaN
        if self._renormalise:
            first = max(layouts[0].prefix - place.start, 0)  # rows of prefix tokens have no distances
            weights, place = weights[:, :, first:], slice(place.start + first, place.stop)
        distance = self._distance(layouts, place, weights)
        return (total_distance(weights, distance, layouts[1].prefix if self._renormalise else None),)

    def _distance(self, layouts: tuple[TokenLayout, TokenLayout], place: slice, like: Tensor) -> Tensor:
        """The distances of some rows, (T, rows, M); those of all pairs are kept if they are few."""
        rows, columns = self._places[layouts] = _moved(self._places[layouts], like.device)
        if rows.shape[1] * columns.shape[1] * len(rows) > _KEPT_PAIRS:
            return city_block(rows[:, place], columns).to(like)
        if layouts not in self._distances:
            self._distances[layouts] = city_block(rows, columns).to(like)
        return self._distances[layouts][:, place]

    def wanted(self, block: Block, call: AttentionCall) -> Wanted | None:
        """The distance of each row, weighted by attention; rows are needed to normalise over spatial keys."""
        places = self._places.get(_layouts(block)) if block.name in self.buffer else None
        if self._renormalise or places is None or call.q is None:
            return None
        self._places[_layouts(block)] = places = _moved(places, call.q.device)
        return {"distance": places}

    def totals(self, block: Block, statistics: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """-> (B, H)."""
        rows = split_windows(statistics["distance"], _layouts(block)[0].windows)  # (B, T, H, N)
        return (rows.sum((1, 3)),)

    def values(self, block: Block, *sums: Tensor) -> Tensor:
        """-> (B, H, 1)."""
        return sums[0][..., None]

    def result(self, anatomy: Anatomy) -> Result:
        """Mean distances over pairs and over rows."""
        totals = table([layer.mean(0)[:, 0] for layer in self.per_image()])
        layouts = [_layouts(block) for block in self.blocks]
        known = np.array([np.nan if each not in self._places else 1.0 for each in layouts])
        rows = np.array([queries.tokens - queries.prefix for queries, _ in layouts])
        uniform = {each: self._uniform(*each) for each in dict.fromkeys(layouts)}
        values = {
            "distance": totals * (known / [pairs(*each) for each in layouts])[:, None],
            "attended": totals * (known / rows)[:, None],
            "uniform": known * [uniform[each] for each in layouts],
        }
        dims = {name: ("layer", "head")[: value.ndim] for name, value in values.items()}
        return Result(values, dims, self.axes(totals.shape[1]))

    def _uniform(self, queries: TokenLayout, keys: TokenLayout) -> float:
        """`attended` under uniform attention within a window."""
        if (queries, keys) not in self._places:
            return float("nan")
        rows, columns = self._places[queries, keys]
        total = summed_distance(rows[:, queries.prefix :], columns[:, keys.prefix :])
        keys_per_row = columns.shape[1] - (keys.prefix if self._renormalise else 0)
        return total / keys_per_row / (queries.tokens - queries.prefix)


def measure(model: nn.Module, batches: Iterable[Any], *, renormalise: bool = False) -> Measurement:
    """Mean distance between query and key weighted by attention, by layer and head.

    Only spatial tokens are used; rows and columns of prefix tokens are excluded. Coordinates run from 0 to 1 along each
    side and a token is at the centre of its cell (`token_positions`). This is our choice: the paper only says
    "normalised". Tokens of a window have their positions in the whole image, and a_ij = 0 between tokens of different
    windows.

    Args:
        model: a model with attention maps; it runs in evaluation mode.
        batches: yields (images, targets) or images.
        renormalise: normalise every row to sum to 1 over the spatial keys. Default False, as in the paper's formula:
            attention to the class token counts as distance 0.

    Returns:
        `distance` (layer, head), the paper's mean over all pairs i ≠ j of the map, which falls as 1/N with the number
        of tokens; `attended` (layer, head), the mean over queries of Σ_j a_ij d_ij, which does not depend on N;
        `uniform` (layer), the value of `attended` under uniform attention. NaN where positions are unknown.
    """
    return observe(model, batches, [Accumulator(renormalise)])[0]


def _moved(places: tuple[Tensor, Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
    return places[0].to(device), places[1].to(device)


def _layouts(block: Block) -> tuple[TokenLayout, TokenLayout]:
    queries, keys = block.mixer.queries, block.mixer.keys
    assert queries is not None and keys is not None
    return queries, keys
