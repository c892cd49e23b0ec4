"""timm's Hiera: tokens are unrolled so that pooling is a maximum over an axis, and in row-major order only at the end.

The first blocks attend inside mask units. Token p then belongs to unit p mod T: units are the fastest axis.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from vitlab.adapters.blocks import block_of, mlp_seams, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {"hiera": "timm/hiera_tiny_224"}
CLASSES = ("timm.models.hiera.Hiera",)
ABSENT = {"attn": "attention works on unrolled tokens, and pools its queries"}


def family(model: nn.Module) -> str:
    """One family."""
    return "hiera"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """All blocks; the first of a stage pools its queries and so the map."""
    result: list[Block] = []
    before = _unrolled(model, 0)
    for index, block in enumerate(model.blocks):
        path, after = f"blocks.{index}", _unrolled(model, index)
        stage = sum(index > end for end in model.stage_ends)
        mixer = _mixer(f"{path}.attn", block.attn, before, after)
        result.append(block_of(path, index, stage, mixer, _places(flow, path, block, before, after)))
        before = after
    return with_stage_ends(result)


def _unrolled(model: Any, index: int) -> TokenLayout:
    """The layout after a block: the model's `reroll`, applied to token positions."""
    _, (h, w) = model.reroll.schedule[index]
    positions = model.reroll(torch.arange(h * w, device="cpu").view(1, -1, 1), index).flatten()
    order = tuple(positions.argsort().tolist())
    return TokenLayout((h, w), permutation=None if order == tuple(range(h * w)) else order)


def _mixer(path: str, attention: Any, before: TokenLayout, after: TokenLayout) -> Mixer:
    if not attention.use_mask_unit_attn:
        return Mixer("attention", path, after, before)
    units = before.tokens // (attention.q_stride * attention.window_size)
    return Mixer("window attention", path, _by_unit(after, units), _by_unit(before, units))


def _by_unit(layout: TokenLayout, units: int) -> TokenLayout:
    """The same tokens grouped by mask unit, as in attention."""
    order = layout.permutation or tuple(range(layout.tokens))
    return replace(layout, windows=units, permutation=tuple(p for unit in range(units) for p in order[unit::units]))


def _places(flow: Flow, path: str, block: Any, before: TokenLayout, after: TokenLayout) -> list[Seam]:
    """A pre-norm block; where it widens, norm1 may feed the skip path too, and `attn.in` is at the attention module."""
    entry = "norm1" if block.proj is None else "attn"
    return [
        flow.seam("block.in", path, "in", before),
        flow.seam("attn.in", f"{path}.{entry}", "in", before),
        flow.seam("attn.out", f"{path}.attn", "out", after),
        flow.seam("block.mid", f"{path}.norm2", "in", after),
        *mlp_seams(flow, f"{path}.mlp", after),
        flow.seam("block.out", path, "out", after),
    ]
