"""The procedure `blocks`: the token mixers, stages, grids, channels, heads and parts of a model's blocks."""

from __future__ import annotations

import numpy as np
from torch import nn

from vitlab.adapters import describe
from vitlab.core.anatomy import Block
from vitlab.core.measurement import Measurement
from vitlab.fitted import parts

__all__ = ["block_plan"]


def block_plan(model: nn.Module, size: tuple[int, int] | None = None) -> Measurement:
    """Returns the plan of a model.

    Args:
        model: any model that can be described.
        size: height and width of its input; by default its own.

    Returns:
        `mixer` and `parts` (text), `stage`, `channels`, `heads` (0 without attention), `mlp` (whether the block has an
        MLP), all (block); `grid` (block, side). Several parts of a block are separated by `, `.
    """
    blocks = describe(model, size).blocks
    places = [_place(block) for block in blocks]
    fitted = parts(model)
    values = {
        "mixer": np.array([block.mixer.kind for block in blocks]),
        "stage": np.array([block.stage for block in blocks]),
        "channels": np.array([channels for channels, _ in places]),
        "heads": np.array([_heads(model, block) for block in blocks]),
        "mlp": np.array([block.seam("mlp.out") is not None for block in blocks]),
        "parts": np.array([", ".join(part.name for part in fitted if part.block == block.name) for block in blocks]),
        "grid": np.array([grid for _, grid in places]),
    }
    dims = {name: ("block", "side")[: value.ndim] for name, value in values.items()}
    axes = {"block": tuple(block.name for block in blocks), "side": ("height", "width")}
    return Measurement("blocks", type(model).__name__, values, dims, axes)


def _heads(model: nn.Module, block: Block) -> int:
    """The heads of the attention of a block."""
    if "attention" not in block.mixer.kind:
        return 0
    return int(getattr(model.get_submodule(block.mixer.path), "num_heads", 0))


def _place(block: Block) -> tuple[int, tuple[int, int]]:
    """The channels and the grid at the end of a block; zeros where they are not known."""
    place = block.tap("block.out") or next(iter((*block.seams, *block.taps)), None)
    if place is not None:
        return place.dim, place.layout.grid
    return 0, block.mixer.queries.grid if block.mixer.queries is not None else (0, 0)
