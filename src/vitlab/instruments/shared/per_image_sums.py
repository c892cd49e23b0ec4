"""Observers that store a few numbers per image and head; `RowSumObserver` sums them over the rows of a map.

Shape legend: B images, T windows, H heads, N query tokens, n query tokens of a chunk, M key tokens, k numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.errors import VitlabError
from vitlab.instruments.shared.device_buffer import DeviceBuffer, fetch
from vitlab.instruments.shared.one_pass import Observer, attention_blocks
from vitlab.recording.attention_call import AttentionCall, Rows

_MAPS_PER_GROUP = 6  # maximum number of maps whose sums are stored before `values` is applied


class PerImageObserver(Observer):
    """Stores k numbers per image and head: a subclass puts a tensor (B, H, k) per batch into `buffer`."""

    def begin(self, anatomy: Anatomy) -> None:
        """Create the buffer, with one entry per block that has a map."""
        self.blocks = attention_blocks(anatomy, self.kind)
        self.buffer = DeviceBuffer(block.name for block in self.blocks)

    def per_image(self) -> list[np.ndarray]:
        """For each block, the stored numbers of all images: (images, H, k)."""
        stored = [self.buffer.get(block.name) for block in self.blocks]
        arrays = iter(fetch([part for parts in stored for part in parts]))
        layers = [np.concatenate([next(arrays) for _ in parts]) for parts in stored]
        for block, values in zip(self.blocks, layers, strict=True):
            require_finite(self.kind, block.name, values)
        return layers

    def axes(self, heads: int) -> dict[str, tuple[object, ...]]:
        """Labels of the layer and head axes."""
        return {"layer": tuple(block.name for block in self.blocks), "head": tuple(range(heads))}


class RowSumObserver(PerImageObserver):
    """Sums the results of `sums` over the chunks of each map, and stores the result of `values` for the totals.

    A subclass implements these two methods; a map is never stored whole. Layers of the same shape are concatenated
    along the batch axis for `values`: on a GPU this step is launch-bound, not compute-bound.
    """

    attention = "rows"

    def begin(self, anatomy: Anatomy) -> None:
        """Create the buffer, with one entry per block that has a map."""
        super().begin(anatomy)
        self._maps: list[tuple[Block, tuple[Tensor, ...]]] = []

    def sums(self, block: Block, rows: Rows) -> tuple[Tensor, ...]:
        """Sums over the rows of a chunk; the first axis of each is B or B·T."""
        raise NotImplementedError

    def values(self, block: Block, *sums: Tensor) -> Tensor:
        """Totals over all rows of a map -> (B, H, k)."""
        raise NotImplementedError

    def rows(self, block: Block, call: AttentionCall, rows: Rows) -> None:
        """Add the sums of one chunk of a map."""
        if block.name not in self.buffer:
            return
        sums = self.sums(block, rows)
        if rows.place.start:
            sums = tuple(a + b for a, b in zip(self._maps.pop()[1], sums, strict=True))
        self._put(block, sums)

    def totals(self, block: Block, statistics: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The totals of `sums` over all rows, from the statistics that `wanted` names."""
        raise NotImplementedError

    def streamed(self, block: Block, call: AttentionCall, statistics: Mapping[str, Tensor]) -> None:
        """Store the totals of a map."""
        if block.name in self.buffer:
            self._put(block, self.totals(block, statistics))

    def _put(self, block: Block, sums: tuple[Tensor, ...]) -> None:
        if len(self._maps) == _MAPS_PER_GROUP:
            self.end_batch()
        self._maps.append((block, sums))

    def end_batch(self) -> None:
        """Apply `values` to the totals; called at the end of a batch, or earlier to limit memory."""
        groups: dict[object, list[tuple[Block, tuple[Tensor, ...]]]] = {}
        for block, sums in self._maps:
            shapes = tuple(total.shape for total in sums)
            groups.setdefault((block.mixer.queries, block.mixer.keys, shapes), []).append((block, sums))
        self._maps = []
        for maps in groups.values():
            totals = map(torch.cat, zip(*(sums for _, sums in maps), strict=True))
            values = self.values(maps[0][0], *totals)
            for (block, _), each in zip(maps, values.chunk(len(maps)), strict=True):
                self.buffer.put(block.name, each)


def require_finite(kind: str, layer: str, values: np.ndarray) -> None:
    """Raise an error if attention is NaN or infinite."""
    if not np.isfinite(values).all():
        raise VitlabError(
            f"{kind}: attention in {layer} is not finite; check the model's weights and the images for NaN"
        )


def flatten_per_image(weights: Tensor, windows: int) -> Tensor:
    """(B·T, H, n, M) -> (B, H, T·n·M): flatten the map of each image; a view if there is one window."""
    return split_windows(weights, windows).transpose(1, 2).flatten(2)


def split_windows(x: Tensor, windows: int) -> Tensor:
    """(B·T, ...) -> (B, T, ...)."""
    return x.reshape(-1, windows, *x.shape[1:])
