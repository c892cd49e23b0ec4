"""vitlab's LocalViT: attention over all tokens, then a convolutional MLP over the patches without the class token."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, holds_packed_qkv, mlp_seams, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {"local_vit": "vitlab/local_vit_tiny"}
CLASSES = ("vitlab.models.local_vit.LocalVisionTransformer",)
ABSENT: dict[str, str] = {}


def family(model: nn.Module) -> str:
    """One family."""
    return "local_vit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The MLP's seams have the map without the class token: a mean over tokens there is a mean over patches."""
    grid = flow.grid("patch_embed.proj")
    tokens, patches = TokenLayout(grid, prefix=model.num_prefix_tokens), TokenLayout(grid, order="BCHW")
    result = []
    for index, block in enumerate(model.blocks):
        path = f"blocks.{index}"
        places = [
            flow.seam("block.in", f"{path}.norm1", "in", tokens),
            flow.seam("attn.in", f"{path}.norm1", "in", tokens),
            *([flow.seam("attn", f"{path}.attn", "replace", tokens)] if holds_packed_qkv(block.attn) else []),
            flow.seam("attn.out", f"{path}.attn", "out", tokens),
            flow.seam("block.mid", f"{path}.norm2", "in", tokens),
            *mlp_seams(flow, f"{path}.mlp", patches),
            flow.seam("block.out", path, "out", tokens),
        ]
        result.append(block_of(path, index, 0, Mixer("attention", f"{path}.attn", tokens, tokens), places))
    return with_stage_ends(result)
