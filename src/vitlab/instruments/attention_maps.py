"""Attention maps of selected images, layers, heads and query tokens (CB Fig. 10; TAPADL Figs. 1, 3, 4).

Shape legend: I selected images, T windows, H heads, N query tokens, M key tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy, Block, TokenLayout
from vitlab.core.bounds import Length, Range, Weight
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.measurement import Card, Measurement
from vitlab.instruments.shared.one_pass import Observer, Result, attention_blocks, observe, table
from vitlab.instruments.shared.per_image_sums import require_finite, split_windows
from vitlab.instruments.shared.token_positions import positions
from vitlab.recording.attention_call import AttentionCall, Rows
from vitlab.recording.tokens import orders

CARD = Card(
    title="Attention maps of chosen images, layers, heads and query tokens",
    paper="CB Fig. 10; TAPADL Figs. 1, 3, 4",
    cost="one forward over the chosen images",
    inputs="images",
    passes="one",
    needs=("attention",),
)

Indices = Annotated[Sequence[int], Length(1, 100_000)]
Heads = Indices | Literal["mean"] | None


def emphasise(rows: Tensor, threshold: float = 0.0, minmax: bool = False) -> Tensor:
    """Set entries below threshold / M to 0, then optionally rescale each row to [0, 1] (CB Sec. 4.5, Fig. 10).

    The paper applies "the same thresholding and min-max normalization" to both models without values; a threshold in
    multiples of uniform attention 1 / M is our interpretation.

    Args:
        rows: (..., M)
        threshold: in multiples of 1 / M.
        minmax: (a − min a) / (max a − min a); a row of equal entries becomes 0.

    Returns:
        (..., M)

    >>> emphasise(torch.tensor([0.5, 0.3, 0.1, 0.1]), threshold=1)
    tensor([0.5000, 0.3000, 0.0000, 0.0000])
    >>> emphasise(torch.tensor([0.5, 0.3, 0.1, 0.1]), minmax=True)
    tensor([1.0000, 0.5000, 0.0000, 0.0000])
    """
    rows = rows * (rows >= threshold / rows.shape[-1])
    if minmax:
        low, high = rows.amin(-1, keepdim=True), rows.amax(-1, keepdim=True)
        rows = (rows - low) / (high - low).clamp_min(torch.finfo(rows.dtype).tiny)
    return rows


def whole_map(weights: Tensor, queries: TokenLayout, keys: TokenLayout) -> Tensor:
    """Combine the maps of windows into one map in full-map token order; 0 between tokens of different windows.

    Args:
        weights: (I·T, H, n, m)
        queries, keys: layouts of rows and columns.

    Returns:
        (I, H, N, M)

    >>> whole_map(torch.ones(2, 1, 1, 1), *[TokenLayout((1, 2), windows=2, permutation=(1, 0))] * 2)[0, 0]
    tensor([[1., 0.],
            [0., 1.]])
    """
    if queries.permutation is None or keys.permutation is None:
        return weights
    split = split_windows(weights, queries.windows).transpose(1, 2)  # (I, H, T, n, m)
    dense = weights.new_zeros(*split.shape[:4], queries.windows, split.shape[4])
    each = torch.arange(queries.windows, device=weights.device)
    dense[:, :, each, :, each] = split.movedim(2, 0)  # the diagonal of windows: (T, I, H, n, m)
    rows, columns = (orders(layout, weights.device)[1] for layout in (queries, keys))
    return dense.flatten(4, 5).flatten(2, 3)[:, :, rows][:, :, :, columns]


class _MapCollector(Observer):
    """Stores the maps of the selected layers."""

    kind = "attention_maps"
    attention = "rows"

    def __init__(
        self,
        images: list[int],
        layers: Sequence[str | int],
        heads: Heads,
        queries: Sequence[int] | None,
        **options: Any,
    ) -> None:
        self._images, self._layers, self._heads, self._queries = images, layers, heads, queries
        self._options = options  # of `emphasise`

    def begin(self, anatomy: Anatomy) -> None:
        """Select the layers."""
        self._blocks = _select_blocks(attention_blocks(anatomy, self.kind), self._layers)
        self._pieces: dict[str, list[Tensor]] = {block.name: [] for block in self._blocks}

    def rows(self, block: Block, call: AttentionCall, rows: Rows) -> None:
        """Store a chunk of a map; if a block runs more than once, its last map is used."""
        if block.name in self._pieces:
            if rows.place.start == 0:
                self._pieces[block.name].clear()
            self._pieces[block.name].append(rows.weights.cpu())

    def result(self, anatomy: Anatomy) -> Result:
        """The maps, and the grids for drawing them."""
        values: dict[str, np.ndarray] = {}
        dims: dict[str, tuple[str, ...]] = {"key_grid": ("layer", "side"), "key_prefix": ("layer",)}
        dims["attended"] = ("layer", "head")
        attended: list[np.ndarray] = []
        axes: dict[str, tuple[Any, ...]] = {
            "layer": tuple(block.name for block in self._blocks),
            "side": ("height", "width"),
            "image": tuple(self._images),
        }
        for block in self._blocks:
            maps, heads, queries = self._select(block)
            values[block.name] = maps.numpy()
            attended.append((values[block.name] > 0).mean((0, 2, 3)))
            names = [f"{axis} of {block.name}" for axis in ("head", "query", "key")]
            dims[block.name] = ("image", *names)
            axes |= {names[0]: tuple(heads), names[1]: tuple(queries)}
        keys = [block.mixer.keys for block in self._blocks if block.mixer.keys is not None]
        values |= {"key_grid": np.array([k.grid for k in keys]), "key_prefix": np.array([k.prefix for k in keys])}
        values["attended"] = table(attended)
        return Result(values, dims, axes)

    def _select(self, block: Block) -> tuple[Tensor, list[Any], list[int]]:
        queries, keys = block.mixer.queries, block.mixer.keys
        assert queries is not None and keys is not None
        if positions(queries) is None or positions(keys) is None:
            raise VitlabError(
                f"the windows of {block.name} are padded and cannot be combined; use an image size that they tile"
            )
        maps = torch.cat(self._pieces[block.name], 2)
        require_finite(self.kind, block.name, maps.numpy())
        heads: list[Any] = ["mean"]
        if self._heads == "mean":
            maps = maps.mean(1, keepdim=True)
        else:
            heads = _indices(self._heads, maps.shape[1], f"head of {block.name}")
            maps = maps[:, heads]
        maps = whole_map(emphasise(maps, **self._options), queries, keys)
        tokens = _indices(self._queries, maps.shape[2], f"query token of {block.name}")
        return maps[:, :, tokens], heads, tokens


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    images: Annotated[Sequence[Annotated[int, Range(0, 10**9)]], Length(1, 1000)] = (0,),
    layers: Annotated[Sequence[str | int], Length(1, 1000)] = (-1,),
    heads: Heads = None,
    queries: Indices | None = None,
    threshold: Weight = 0.0,
    minmax: bool = False,
) -> Measurement:
    """Attention maps of selected images, layers, heads and query tokens.

    Args:
        model: a model with attention maps; it runs in evaluation mode.
        batches: yields (images, targets) or images.
        images: indices of the images in the data. Default: the first. Maps are shown and not averaged, so only these
            images are used, independent of `--images` of the command line.
        layers: names or indices (negative from the end) of blocks with attention, without class attention.
        heads: indices of heads, `"mean"` for their average (TAPADL Fig. 1), None for all.
        queries: indices of query tokens, prefix tokens first, then the grid row by row (0 is the class token if there
            is one, negative from the end); None for all.
        threshold: entries below this multiple of uniform attention over the keys of a window are set to 0.
        minmax: rescale each row to [0, 1].

    Returns:
        For every layer, under its name, (image, head, query, key), the tokens of windowed layers in full-map order
        with 0 outside a query's window; `key_grid` (layer, side) and `key_prefix` (layer), for drawing a row as an
        image; `attended` (layer, head), the share of entries above 0, the mean over images and queries.
    """
    collector = _MapCollector(list(images), layers, heads, queries, threshold=threshold, minmax=minmax)
    collector.settings = {
        "heads": heads if heads is None or heads == "mean" else list(heads),
        "threshold": threshold,
        "minmax": minmax,
    }
    return observe(model, [_gather(batches, list(images))], [collector])[0]


def _gather(batches: Iterable[Any], indices: list[int]) -> Tensor:
    """The selected images as one batch; batches after the last of them are not read."""
    selected: dict[int, Tensor] = {}
    start = 0
    for item in batches:
        batch = item[0] if isinstance(item, (tuple, list)) else item
        selected |= {i: batch[i - start] for i in indices if start <= i < start + len(batch)}
        start += len(batch)
        if start > max(indices):
            return torch.stack([selected[i] for i in indices])
    raise VitlabError(f"attention_maps: no image {max(indices)}; the data has {start} images")


def _select_blocks(blocks: list[Block], layers: Sequence[str | int]) -> list[Block]:
    names = [block.name for block in blocks]
    chosen = []
    for layer in layers:
        if isinstance(layer, str) and layer not in names:
            raise unknown("layer with attention", layer, names)
        chosen.append(
            names.index(layer) if isinstance(layer, str) else _indices([layer], len(names), "layer with attention")[0]
        )
    return [blocks[i] for i in dict.fromkeys(chosen)]


def _indices(numbers: Sequence[int] | None, count: int, what: str) -> list[int]:
    """Non-negative indices; raise an error if one is out of range."""
    for number in numbers or ():
        if not isinstance(number, int) or not -count <= number < count:
            raise VitlabError(f"no {what} {number!r}; there are {count}, 0 to {count - 1}")
    return list(range(count)) if numbers is None else [number % count for number in numbers]
