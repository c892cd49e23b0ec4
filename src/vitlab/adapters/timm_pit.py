"""timm's PiT: a ViT in three stages; a strided convolution halves the grid; class tokens bypass it."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import holds_packed_qkv, transformer_block, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {"pit": "timm/pit_ti_224"}
CLASSES = ("timm.models.pit.PoolingVisionTransformer",)
ABSENT: dict[str, str] = {}


def family(model: nn.Module) -> str:
    """One family, with or without a distillation token."""
    return "pit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of all stages."""
    result: list[Block] = []
    for stage, transformer in enumerate(model.transformers):
        convolution = "patch_embed.conv" if transformer.pool is None else f"transformers.{stage}.pool.conv"
        layout = TokenLayout(flow.grid(convolution), prefix=model.num_tokens)
        for position, block in enumerate(transformer.blocks):
            path = f"transformers.{stage}.blocks.{position}"
            mixer = Mixer("attention", f"{path}.attn", layout, layout)
            replaceable = holds_packed_qkv(block.attn)
            result.append(
                transformer_block(flow, path, mixer, layout, index=len(result), stage=stage, replaceable=replaceable)
            )
    return with_stage_ends(result)
