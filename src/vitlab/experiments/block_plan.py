"""The procedure `blocks`: the token mixers, stages, grids and channels of a model's blocks."""

from __future__ import annotations

import numpy as np
from torch import nn

from vitlab.adapters import describe
from vitlab.core.anatomy import Block
from vitlab.core.measurement import Measurement

__all__ = ["block_plan"]


def block_plan(model: nn.Module, size: tuple[int, int] | None = None) -> Measurement:
    """Returns the plan of a model: `mixer` (text), `stage`, `channels` (block) and `grid` (block, side).

    Args:
        model: any model that can be described.
        size: height and width of its input; by default its own.
    """
    blocks = describe(model, size).blocks
    places = [_place(block) for block in blocks]
    values = {
        "mixer": np.array([block.mixer.kind for block in blocks]),
        "stage": np.array([block.stage for block in blocks]),
        "channels": np.array([channels for channels, _ in places]),
        "grid": np.array([grid for _, grid in places]),
    }
    dims = {"mixer": ("block",), "stage": ("block",), "channels": ("block",), "grid": ("block", "side")}
    axes = {"block": tuple(block.name for block in blocks), "side": ("height", "width")}
    return Measurement("blocks", type(model).__name__, values, dims, axes)


def _place(block: Block) -> tuple[int, tuple[int, int]]:
    """The channels and the grid at the end of a block; zeros where they are not known."""
    place = block.tap("block.out") or next(iter((*block.seams, *block.taps)), None)
    if place is not None:
        return place.dim, place.layout.grid
    return 0, block.mixer.queries.grid if block.mixer.queries is not None else (0, 0)
