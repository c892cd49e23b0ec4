"""timm's ConViT: gated positional attention in the lower blocks; the class token is added before plain attention."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import holds_packed_qkv, transformer_block, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {"convit": "timm/convit_tiny"}
CLASSES = ("timm.models.convit.ConVit",)
ABSENT = {"attn": "gated positional attention has no packed qkv"}


def family(model: nn.Module) -> str:
    """One family."""
    return "convit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks; only plain attention can be replaced."""
    grid = flow.grid("patch_embed.proj")
    result = []
    for index, block in enumerate(model.blocks):
        path = f"blocks.{index}"
        layout = TokenLayout(grid, prefix=int(index >= model.local_up_to_layer))
        # a gate adds two softmaxes, of content and of position: the map is their sum
        map_at = f"{path}.attn.attn_drop" if block.use_gpsa else None
        mixer = Mixer("attention", f"{path}.attn", layout, layout, map_at=map_at)
        replaceable = holds_packed_qkv(block.attn)
        result.append(transformer_block(flow, path, mixer, layout, index=index, replaceable=replaceable))
    return with_stage_ends(result)
