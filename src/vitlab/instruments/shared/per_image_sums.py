"""Observers that keep a few numbers of every image and head; `RowSums` for those that add up over the rows of a map.

Shape legend: B images, T windows, H heads, N query tokens, n of them in a piece, M key tokens, k numbers.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.errors import VitlabError
from vitlab.instruments.shared.device_buffer import DeviceBuffer, fetch
from vitlab.instruments.shared.one_pass import Observer, attention_blocks
from vitlab.recording.attention_call import AttentionCall, Rows

_TOGETHER = 6  # maps whose sums are kept until they are read


class ByImage(Observer):
    """Keeps some numbers of every image and head: a subclass puts them on the `shelf`, a batch (B, H, k) at a time."""

    def begin(self, anatomy: Anatomy) -> None:
        """Room for each block that has a map."""
        self.blocks = attention_blocks(anatomy, self.kind)
        self.shelf = DeviceBuffer(block.name for block in self.blocks)

    def found(self) -> list[np.ndarray]:
        """For each block what was kept, all images together: (images, H, k)."""
        kept = [self.shelf.take(block.name) for block in self.blocks]
        each = iter(fetch([part for parts in kept for part in parts]))
        layers = [np.concatenate([next(each) for _ in parts]) for parts in kept]
        for block, values in zip(self.blocks, layers, strict=True):
            refuse_not_finite(self.kind, block.name, values)
        return layers

    def axes(self, heads: int) -> dict[str, tuple[object, ...]]:
        """The labels of layers and heads."""
        return {"layer": tuple(block.name for block in self.blocks), "head": tuple(range(heads))}


class RowSums(ByImage):
    """Adds up what `sums` makes of the pieces of each map, and keeps what `values` makes of the totals.

    A subclass writes these two; no map need be held whole. Layers that are alike go through `values` together, as if
    they were more images: on a GPU many small operations cost more than the numbers do.
    """

    attention = "rows"

    def begin(self, anatomy: Anatomy) -> None:
        """Room for each block that has a map."""
        super().begin(anatomy)
        self._maps: list[tuple[Block, tuple[Tensor, ...]]] = []

    def sums(self, block: Block, rows: Rows) -> tuple[Tensor, ...]:
        """Sums over the rows of a piece; the first axis of each is of images or of windows."""
        raise NotImplementedError

    def values(self, block: Block, *sums: Tensor) -> Tensor:
        """Totals over all rows of a map -> (B, H, k)."""
        raise NotImplementedError

    def rows(self, block: Block, call: AttentionCall, rows: Rows) -> None:
        """One piece of a map."""
        if block.name not in self.shelf:
            return
        if len(self._maps) == _TOGETHER and rows.place.start == 0:
            self.after()
        sums = self.sums(block, rows)
        if rows.place.start:
            sums = tuple(a + b for a, b in zip(self._maps.pop()[1], sums, strict=True))
        self._maps.append((block, sums))

    def after(self) -> None:
        """The maps of a batch are complete, or so many of them that their sums take room."""
        alike: dict[object, list[tuple[Block, tuple[Tensor, ...]]]] = {}
        for block, sums in self._maps:
            shapes = tuple(total.shape for total in sums)
            alike.setdefault((block.mixer.queries, block.mixer.keys, shapes), []).append((block, sums))
        self._maps = []
        for maps in alike.values():
            totals = map(torch.cat, zip(*(sums for _, sums in maps), strict=True))
            values = self.values(maps[0][0], *totals)
            for (block, _), each in zip(maps, values.chunk(len(maps)), strict=True):
                self.shelf.put(block.name, each)


def refuse_not_finite(kind: str, layer: str, values: np.ndarray) -> None:
    """An error where attention is no number or infinite: no instrument may average that away."""
    if not np.isfinite(values).all():
        raise VitlabError(
            f"{kind}: attention in {layer} is not a number; check the model's weights and the images for NaN"
        )


def by_image(weights: Tensor, windows: int) -> Tensor:
    """(B·T, H, n, M) -> (B, H, T·n·M): all entries of an image's map in one line, a view where there is one window."""
    return split_windows(weights, windows).transpose(1, 2).flatten(2)


def split_windows(x: Tensor, windows: int) -> Tensor:
    """(B·T, ...) -> (B, T, ...)."""
    return x.reshape(-1, windows, *x.shape[1:])
