"""Attention distance: how far apart in the image the tokens are that attend to each other (CB Fig. 7b).

    dist = E_{i≠j} (a_ij ‖p_i − p_j‖₁)   over spatial tokens, p_i the normalised coordinate of token i

Shape legend: B batch, T windows, H heads, N query tokens, M key tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block, TokenLayout
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.instruments.shared.one_pass import Result, observe, table
from vitlab.instruments.shared.per_image_sums import RowSums, by_image
from vitlab.instruments.shared.token_positions import distances
from vitlab.recording.attention_call import Rows

CARD = Card(
    title="Distance over which tokens attend, by layer and head",
    paper="CB Fig. 7b",
    cost="one forward",
    inputs="images",
    passes="shared",
    needs=("attention",),
)


def total_distance(weights: Tensor, distance: Tensor, renormalise_from: int | None = None) -> Tensor:
    """Σ_ij a_ij d_ij over the rows i and keys j of an image's map.

    Args:
        weights: (B·T, H, N, M), rows that sum to 1.
        distance: (T, N, M), 0 for prefix tokens.
        renormalise_from: where given, the first spatial key: each row is divided by its mass on the keys from there on.

    Returns:
        (B, H)

    >>> row = torch.tensor([0.5, 0.25, 0.25]).reshape(1, 1, 1, 3)  # a class token takes half
    >>> total_distance(row, torch.tensor([[[0.0, 0.0, 1.0]]])).item()
    0.25
    >>> total_distance(row, torch.tensor([[[0.0, 0.0, 1.0]]]), renormalise_from=1).item()
    0.5
    """
    if renormalise_from is not None:
        spatial = weights[..., renormalise_from:].sum(-1, keepdim=True)
        weights = weights / spatial.clamp_min(torch.finfo(weights.dtype).tiny)
    return by_image(weights, len(distance)) @ distance.flatten()


def pairs(queries: TokenLayout, keys: TokenLayout) -> int:
    """How many pairs i ≠ j of spatial tokens there are in the whole map; no key of a reduced map is the query itself.

    >>> pairs(TokenLayout((14, 14), prefix=1), TokenLayout((14, 14), prefix=1)) == 196 * 195
    True
    """
    rows, columns = (layout.tokens - layout.prefix for layout in (queries, keys))
    return rows * columns - (rows if queries.grid == keys.grid else 0)


class Accumulator(RowSums):
    """Keeps Σ_ij a_ij d_ij of every map."""

    kind = "attention_distance"

    def __init__(self, renormalise: bool = False) -> None:
        self.settings = {"renormalise": renormalise}
        self._renormalise = renormalise
        self._distances: dict[tuple[TokenLayout, TokenLayout], Tensor] = {}

    def begin(self, anatomy: Anatomy) -> None:
        """Distances for every shape of map."""
        super().begin(anatomy)
        for layouts in map(_layouts, self.blocks):
            known = distances(*layouts) if layouts not in self._distances else None
            if known is not None:
                self._distances[layouts] = known
        if not self._distances:
            raise VitlabError(
                f"{self.kind} needs positions, and those of the tokens are not known: all windows are padded "
                "(feed a size that they tile), or the model shuffles its patches"
            )

    def sums(self, block: Block, rows: Rows) -> tuple[Tensor, ...]:
        """-> (B, H)."""
        layouts, weights, place = _layouts(block), rows.weights, rows.place
        if layouts not in self._distances:
            return (weights.sum((-1, -2)),)  # shows NaN weights; `result` leaves the layer empty
        distance = self._distances[layouts] = self._distances[layouts].to(weights)
        if self._renormalise:
            first = max(layouts[0].prefix - place.start, 0)  # rows of prefix tokens have no distance to scale
            weights, place = weights[:, :, first:], slice(place.start + first, place.stop)
        return (total_distance(weights, distance[:, place], layouts[1].prefix if self._renormalise else None),)

    def values(self, block: Block, *sums: Tensor) -> Tensor:
        """-> (B, H, 1)."""
        return sums[0][..., None]

    def result(self, anatomy: Anatomy) -> Result:
        """Means over pairs and over rows."""
        totals = table([found.mean(0)[:, 0] for found in self.found()])
        layouts = [_layouts(block) for block in self.blocks]
        known = np.array([np.nan if each not in self._distances else 1.0 for each in layouts])
        rows = np.array([queries.tokens - queries.prefix for queries, _ in layouts])
        values = {
            "distance": totals * (known / [pairs(*each) for each in layouts])[:, None],
            "attended": totals * (known / rows)[:, None],
            "uniform": known * [self._uniform(*each) for each in layouts],
        }
        dims = {name: ("layer", "head")[: value.ndim] for name, value in values.items()}
        return Result(values, dims, self.axes(totals.shape[1]))

    def _uniform(self, queries: TokenLayout, keys: TokenLayout) -> float:
        """`attended` where every key of a window has the same weight."""
        distance = self._distances.get((queries, keys))
        if distance is None:
            return float("nan")
        seen = distance.shape[-1] - (keys.prefix if self._renormalise else 0)
        return distance.double().sum().item() / seen / (queries.tokens - queries.prefix)


def measure(model: nn.Module, batches: Iterable[Any], *, renormalise: bool = False) -> Measurement:
    """Distance between tokens that attend to each other, by layer and head.

    Only spatial tokens count: rows and columns of prefix tokens are left out. Coordinates run from 0 to 1 along each
    side and a token stands in the middle of its cell (`token_positions`), which is our choice: the paper only says
    "normalised". Tokens of a window stand where they are in the whole image, and a_ij = 0 between tokens of different
    windows.

    Args:
        model: a model with attention maps; it runs in evaluation mode.
        batches: yields (images, targets) or images.
        renormalise: make every row sum to 1 over the spatial keys. The paper's formula takes a_ij as it is, so that
            what goes to the class token counts as no distance: the default.

    Returns:
        `distance` (layer, head), the paper's mean over all pairs i ≠ j of the map, which falls as 1/N with the number
        of tokens; `attended` (layer, head), the mean over queries of Σ_j a_ij d_ij: how far a query looks, whatever N
        is; `uniform` (layer), what `attended` is under uniform attention. NaN where positions are not known.
    """
    return observe(model, batches, [Accumulator(renormalise)])[0]


def _layouts(block: Block) -> tuple[TokenLayout, TokenLayout]:
    queries, keys = block.mixer.queries, block.mixer.keys
    assert queries is not None and keys is not None
    return queries, keys
