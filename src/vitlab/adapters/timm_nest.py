"""timm's NesT: plain blocks inside image blocks, which have a separate axis, (B, T, N, D)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from vitlab.adapters.blocks import transformer_block, window_layout, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer

FAMILIES = {"nest": "timm/nest_tiny"}
CLASSES = ("timm.models.nest.Nest",)
ABSENT = {"attn": "attention works inside image blocks"}


def family(model: nn.Module) -> str:
    """One family."""
    return "nest"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The layers of all levels; a level pools its map before it splits it into image blocks."""
    result: list[Block] = []
    for stage, level in enumerate(model.levels):
        grid = flow.grid(f"levels.{stage}.pool")
        layout = replace(window_layout(grid, (level.block_size, level.block_size)), order="BTND")
        for position in range(len(level.transformer_encoder)):
            path = f"levels.{stage}.transformer_encoder.{position}"
            mixer = Mixer("window attention", f"{path}.attn", layout, layout)
            result.append(transformer_block(flow, path, mixer, layout, index=len(result), stage=stage))
    return with_stage_ends(result)
