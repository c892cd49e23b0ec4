"""vitlab's RVT and RVT*: pre-norm blocks that take tokens and their grid; the convolutional MLP works on maps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, holds_packed_qkv, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {"rvt": "vitlab/rvt_tiny", "rvt_plus": "vitlab/rvt_tiny_plus"}
CLASSES = ("vitlab.models.rvt.RobustVisionTransformer",)
ABSENT = {"attn": "attention that is scaled by position takes the grid as an argument"}


def family(model: nn.Module) -> str:
    """RVT* is RVT with position-aware attention scaling in at least one block."""
    return "rvt_plus" if any(getattr(module, "scales_by_position", False) for module in model.modules()) else "rvt"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of all stages."""
    result: list[Block] = []
    for stage, layers in enumerate(model.stages):
        for position, block in enumerate(layers.blocks):
            path = f"stages.{stage}.blocks.{position}"
            layout = TokenLayout(flow.argument(path, 1, "grid"))
            mixer = Mixer("attention", f"{path}.attn", layout, layout)
            result.append(block_of(path, len(result), stage, mixer, _places(flow, path, block, layout)))
    return with_stage_ends(result)


def _places(flow: Flow, path: str, block: Any, layout: TokenLayout) -> list[Seam]:
    hidden = replace(layout, order="BCHW") if block.conv_mlp else layout
    replaceable = holds_packed_qkv(block.attn) and not block.scales_by_position
    return [
        flow.seam("block.in", f"{path}.norm1", "in", layout),
        flow.seam("attn.in", f"{path}.norm1", "in", layout),
        *([flow.seam("attn", f"{path}.attn", "replace", layout)] if replaceable else []),
        flow.seam("attn.out", f"{path}.attn", "out", layout),
        flow.seam("block.mid", f"{path}.norm2", "in", layout),
        flow.seam("mlp.in", f"{path}.mlp", "in", layout),
        flow.seam("mlp.mid", f"{path}.mlp.fc2", "in", hidden),
        flow.seam("mlp.out", f"{path}.mlp", "out", layout),
        flow.seam("block.out", path, "out", layout),
    ]
