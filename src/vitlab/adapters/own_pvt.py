"""vitlab's PVT (version 1): pre-norm blocks in stages with attention to a reduced map; class token in the last one."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import transformer_block, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {"pvt": "vitlab/pvt_tiny"}
CLASSES = ("vitlab.models.pvt.PyramidVisionTransformer",)
ABSENT = {"attn": "attention uses a reduced map, and takes its size as an argument"}


def family(model: nn.Module) -> str:
    """One family."""
    return "pvt"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of all stages."""
    result: list[Block] = []
    for number, stage in enumerate(model.stages):
        layout = TokenLayout(flow.grid(f"stages.{number}.patch_embed.proj"), prefix=stage.prefix)
        for position, block in enumerate(stage.blocks):
            path = f"stages.{number}.blocks.{position}"
            keys = layout if block.attn.sr is None else TokenLayout(flow.grid(f"{path}.attn.sr"))
            mixer = Mixer("attention", f"{path}.attn", layout, keys)
            result.append(transformer_block(flow, path, mixer, layout, index=len(result), stage=number))
    return with_stage_ends(result)
