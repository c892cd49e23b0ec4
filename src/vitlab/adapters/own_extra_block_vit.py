"""vitlab's ViT with an extra block at its end: only attention, or only an MLP."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, holds_packed_qkv, mlp_seams, transformer_block, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {"extra_block_vit": "vitlab/vit_small_depth8_extra_attention"}
CLASSES = ("vitlab.models.extra_block_vit.ExtraBlockVisionTransformer",)
ABSENT: dict[str, str] = {}


def family(model: nn.Module) -> str:
    """One family for both kinds of extra block."""
    return "extra_block_vit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """Full blocks, and the extra block with the seams of its half."""
    layout = TokenLayout(flow.grid("patch_embed.proj"), prefix=model.num_prefix_tokens)
    result = []
    for index, block in enumerate(model.blocks):
        path = f"blocks.{index}"
        mixer = Mixer("attention", f"{path}.attn", layout, layout)
        replaceable = hasattr(block, "attn") and holds_packed_qkv(block.attn)
        if hasattr(block, "attn") and hasattr(block, "mlp"):
            result.append(transformer_block(flow, path, mixer, layout, index=index, replaceable=replaceable))
        elif hasattr(block, "attn"):
            result.append(block_of(path, index, 0, mixer, _attention_places(flow, path, layout, replaceable)))
        else:
            why = "this block is only an MLP: it mixes channels, not tokens"
            places = [
                flow.seam("block.in", f"{path}.norm2", "in", layout),
                *mlp_seams(flow, f"{path}.mlp", layout),
                flow.seam("block.out", path, "out", layout),
            ]
            result.append(block_of(path, index, 0, Mixer("mlp", f"{path}.mlp", why_no_map=why), places))
    return with_stage_ends(result)


def _attention_places(flow: Flow, path: str, layout: TokenLayout, replaceable: bool) -> list[Seam]:
    return [
        flow.seam("block.in", f"{path}.norm1", "in", layout),
        flow.seam("attn.in", f"{path}.norm1", "in", layout),
        *([flow.seam("attn", f"{path}.attn", "replace", layout)] if replaceable else []),
        flow.seam("attn.out", f"{path}.attn", "out", layout),
        flow.seam("block.out", path, "out", layout),
    ]
