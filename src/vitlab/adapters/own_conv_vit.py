"""vitlab's ViT with convolutional attention: the columns of its maps are neighbours instead of tokens."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import transformer_block, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {"conv_vit": "vitlab/conv_vit_tiny_k3"}
CLASSES = ("vitlab.models.conv_vit.ConvolutionalVisionTransformer",)
ABSENT = {"attn": "this model already has local attention (the part LocalAttention in a plain ViT)"}


def family(model: nn.Module) -> str:
    """One family."""
    return "conv_vit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """Pre-norm blocks."""
    layout = TokenLayout(flow.grid("patch_embed.proj"), prefix=model.num_prefix_tokens)
    result = []
    for index, block in enumerate(model.blocks):
        path = f"blocks.{index}"
        result.append(transformer_block(flow, path, _mixer(f"{path}.attn", block.attn, layout), layout, index=index))
    return with_stage_ends(result)


def _mixer(path: str, attention: Any, layout: TokenLayout) -> Mixer:
    if attention.is_global:
        return Mixer("attention", path, layout, layout)
    k = attention.kernel
    why = f"each token attends to its own {k}x{k} neighbourhood, so that the columns are relative positions, not tokens"
    return Mixer("attention", path, why_no_map=why)
