"""timm's plain vision transformer and its close relatives: one resolution, tokens in (B, N, D)."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import holds_packed_qkv, mlp_seams, transformer_block, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {
    "vit": "timm/vit_tiny_patch16_224",
    "deit": "timm/deit_tiny_patch16_224",
    "deit_distilled": "timm/deit_tiny_distilled_patch16_224",
    "deit3": "timm/deit3_small_patch16_224",
}
CLASSES = ("timm.models.vision_transformer.VisionTransformer",)
ABSENT: dict[str, str] = {}


def family(model: nn.Module) -> str:
    """DeiT is timm's ViT under another name: the architecture's name tells."""
    architecture = (getattr(model, "pretrained_cfg", None) or {}).get("architecture", "")
    if "distilled" in type(model).__name__.lower():
        return "deit_distilled"
    return architecture.partition("_")[0] if architecture.startswith(("deit_", "deit3_")) else "vit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """Pre-norm blocks, post-norm ones (`ResPostBlock`), and parallel ones, which have no seam inside."""
    layout = TokenLayout(flow.grid("patch_embed.proj"), prefix=model.num_prefix_tokens)
    found = []
    for index, block in enumerate(model.blocks):
        path = f"blocks.{index}"
        mixer = Mixer("attention", f"{path}.attn", layout, layout)
        if type(block).__name__ == "Block":
            replaceable = holds_packed_qkv(block.attn)
            found.append(transformer_block(flow, path, mixer, layout, index=index, replaceable=replaceable))
            continue
        out = flow.seam("block.out", path, "out", layout)
        seams = [out]
        if type(block).__name__ == "ResPostBlock":
            seams = [
                flow.seam("attn.in", f"{path}.attn", "in", layout),
                flow.seam("attn.out", f"{path}.attn", "out", layout),
                *mlp_seams(flow, f"{path}.mlp", layout),
                out,
            ]
        else:
            mixer = Mixer("attention", path, layout, layout)
        found.append(Block(path, index, 0, mixer, tuple(seams), (out,)))
    return with_stage_ends(found)
