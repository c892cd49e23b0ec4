"""timm's BEiT, EVA and DINOv3: plain ViTs with relative or rotary position embeddings in attention."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, mlp_seams, transformer_block, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {
    "beit": "timm/beit_base_patch16_224",
    "eva": "timm/eva02_tiny_patch14_224",
    "dinov3": "timm/vit_small_patch16_dinov3",
}
CLASSES = (
    "timm.models.beit.Beit",
    "timm.models.eva.Eva",
)
ABSENT = {"attn": "attention takes position biases or rotations, which a replacement would ignore"}


def family(model: nn.Module) -> str:
    """The name of the architecture distinguishes DINOv3 from EVA, which share a class."""
    if type(model).__name__ == "Beit":
        return "beit"
    architecture = (getattr(model, "pretrained_cfg", None) or {}).get("architecture", "")
    return "dinov3" if "dinov3" in architecture else "eva"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """Pre-norm blocks, or the post-norm ones of some EVAs. Gated MLPs (SwiGLU) end in `fc2` like plain ones."""
    layout = TokenLayout(flow.grid("patch_embed.proj"), prefix=model.num_prefix_tokens)
    result = []
    for index, block in enumerate(model.blocks):
        path = f"blocks.{index}"
        mixer = Mixer("attention", f"{path}.attn", layout, layout)
        if type(block).__name__ == "EvaBlockPostNorm":
            result.append(block_of(path, index, 0, mixer, _post_norm(flow, path, layout)))
        else:
            result.append(transformer_block(flow, path, mixer, layout, index=index))
    return with_stage_ends(result)


def _post_norm(flow: Flow, path: str, layout: TokenLayout) -> list[Seam]:
    """x + norm1(attention(x)), then x + norm2(mlp(x))."""
    return [
        flow.seam("block.in", path, "in", layout),
        flow.seam("attn.in", f"{path}.attn", "in", layout),
        flow.seam("attn.out", f"{path}.attn", "out", layout),
        flow.seam("block.mid", f"{path}.mlp", "in", layout),
        *mlp_seams(flow, f"{path}.mlp", layout),
        flow.seam("block.out", path, "out", layout),
    ]
