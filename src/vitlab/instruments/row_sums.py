"""The observer of statistics that add up over the rows of a map, so that no map need be held whole.

Shape legend: B images, T windows, H heads, N query tokens, n of them in a piece, M key tokens, k numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitlab.attention import AttentionCall
from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.errors import VitlabError
from vitlab.instruments.observation import Observer, attention_blocks


class RowSums(Observer):
    """Adds up what `sums` makes of the pieces of each map, and keeps what `values` makes of the totals.

    A subclass writes these two; `found` then holds its numbers for every image and head.
    """

    wants_attention = True

    def begin(self, anatomy: Anatomy) -> None:
        """Room for each block that has a map."""
        self.blocks = attention_blocks(anatomy, self.kind)
        self._open: tuple[Tensor, ...] = ()
        self._found: dict[str, list[Tensor]] = {block.name: [] for block in self.blocks}

    def sums(self, block: Block, rows: slice, weights: Tensor) -> tuple[Tensor, ...]:
        """Sums over the rows of a piece, weights (B·T, H, n, M)."""
        raise NotImplementedError

    def values(self, block: Block, *sums: Tensor) -> Tensor:
        """Totals over all rows of a map -> (B, H, k)."""
        raise NotImplementedError

    def rows(self, block: Block, call: AttentionCall, rows: slice, weights: Tensor) -> None:
        """One piece of a map; the last one completes it."""
        if block.name not in self._found:
            return
        sums = self.sums(block, rows, weights)
        self._open = sums if rows.start == 0 else tuple(a + b for a, b in zip(self._open, sums, strict=True))
        given = call.weights if call.weights is not None else call.q
        assert given is not None
        if rows.stop == given.shape[-2]:
            self._found[block.name].append(self.values(block, *self._open))

    def found(self) -> list[Tensor]:
        """For each block what `values` returned, all images together: (images, H, k), in float64 on the CPU."""
        layers = [torch.cat(self._found[block.name]).double().cpu() for block in self.blocks]
        for block, values in zip(self.blocks, layers, strict=True):
            refuse_nan(self.kind, block.name, values)
        return layers

    def axes(self, heads: int) -> dict[str, tuple[object, ...]]:
        """The labels of layers and heads."""
        return {"layer": tuple(block.name for block in self.blocks), "head": tuple(range(heads))}


def refuse_nan(kind: str, layer: str, values: Tensor) -> None:
    """An error where attention is not a number: no instrument may average that away."""
    if values.isnan().any():
        raise VitlabError(
            f"{kind}: attention in {layer} is not a number; check the model's weights and the images for NaN"
        )


def by_image(weights: Tensor, windows: int) -> Tensor:
    """(B·T, H, n, M) -> (B, H, T·n·M): all entries of an image's map in one line, a view where there is one window."""
    return split_windows(weights, windows).transpose(1, 2).flatten(2)


def split_windows(x: Tensor, windows: int) -> Tensor:
    """(B·T, ...) -> (B, T, ...)."""
    return x.reshape(-1, windows, *x.shape[1:])
