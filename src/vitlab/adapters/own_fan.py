"""vitlab's FAN, plain and hybrid: pre-norm blocks with attentional channel processing as MLP, then class attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from vitlab.adapters.blocks import class_attention_block, transformer_block, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {"fan_vit": "vitlab/fan_tiny_vit", "fan_hybrid": "vitlab/fan_tiny_hybrid"}
CLASSES = ("vitlab.models.fan.FullyAttentionalNetwork",)
ABSENT: dict[str, str] = {}


def family(model: nn.Module) -> str:
    """The hybrids start with two stages of a ConvNeXt."""
    return "fan_hybrid" if hasattr(model.patch_embed, "stages") else "fan_vit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks, without a class token, which is added for the class attention at the end; that has no seams.

    Class attention also changes the patch tokens of this model, so that it has the tap `block.out`.
    """
    grid = flow.argument("blocks.0", 1, "h"), flow.argument("blocks.0", 2, "w")
    layout = TokenLayout(grid)
    result = []
    for index in range(len(model.blocks)):
        path = f"blocks.{index}"
        mixer = Mixer("attention", f"{path}.attn", layout, layout)
        # Mid is before the last layer of the MLP inside the channel processing; its gate and End are after it.
        result.append(transformer_block(flow, path, mixer, layout, index=index, last="mlp.fc2", replaceable=True))
    keys = TokenLayout(grid, prefix=1)
    class_blocks = []
    for position in range(len(model.cls_attn_blocks)):
        path = f"cls_attn_blocks.{position}"
        block = class_attention_block(path, keys, index=len(result) + position)
        class_blocks.append(replace(block, taps=(flow.seam("block.out", path, "out", keys),)))
    return (*with_stage_ends(result), *class_blocks)


def stem(model: Any, flow: Flow) -> tuple[Seam, ...]:
    """The outputs of the two ConvNeXt stages of a hybrid."""
    paths = [f"patch_embed.stages.{stage}" for stage in range(len(getattr(model.patch_embed, "stages", ())))]
    return tuple(flow.seam("stage.out", path, "out", TokenLayout(flow.grid(path), order="BCHW")) for path in paths)
