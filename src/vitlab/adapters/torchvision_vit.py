"""torchvision's ViT: `nn.MultiheadAttention`, and an MLP that is an nn.Sequential."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, sequential_mlp_seams, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {"torchvision_vit": "torchvision/vit_b_16"}
CLASSES = ("torchvision.models.vision_transformer.VisionTransformer",)
ABSENT = {"attn": "parts at this seam need timm's packed qkv, which nn.MultiheadAttention does not have"}


def family(model: nn.Module) -> str:
    """One family."""
    return "torchvision_vit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """Pre-norm blocks; `dropout` is applied to the output of attention only."""
    layout = TokenLayout(flow.grid("conv_proj"), prefix=model.class_token.shape[1])
    result = []
    for index, (name, block) in enumerate(model.encoder.layers.named_children()):
        path = f"encoder.layers.{name}"
        mixer = Mixer("attention", f"{path}.self_attention", layout, layout)
        places = [
            flow.seam("block.in", path, "in", layout),
            flow.seam("attn.in", f"{path}.ln_1", "in", layout),
            flow.seam("attn.out", f"{path}.dropout", "in", layout),
            flow.seam("block.mid", f"{path}.ln_2", "in", layout),
            *sequential_mlp_seams(flow, f"{path}.mlp", block.mlp, layout),
            flow.seam("block.out", path, "out", layout),
        ]
        result.append(block_of(path, index, 0, mixer, places))
    return with_stage_ends(result)
