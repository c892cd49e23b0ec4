"""timm's CaiT and XCiT: blocks of patch tokens alone, then class attention, where the class token gathers from them."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import class_attention_block, transformer_block, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {
    "cait": "timm/cait_xxs24_224",
    "xcit": "timm/xcit_nano_12_p16_224",
}
CLASSES = (
    "timm.models.cait.Cait",
    "timm.models.xcit.Xcit",
)
ABSENT = {"attn": "CaiT mixes heads around its softmax and XCiT attends over channels, which a replacement would drop"}


def family(model: nn.Module) -> str:
    """Each has a class of its own."""
    return type(model).__name__.lower()


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of patch tokens, then those of class attention, which have no seams: they move one token only."""
    describe, gathering = (
        (_talking_heads, "blocks_token_only") if family(model) == "cait" else (_cross_covariance, "cls_attn_blocks")
    )
    grid = flow.grid("patch_embed.proj")
    layout, with_class = TokenLayout(grid), TokenLayout(grid, prefix=1)
    found = []
    for index in range(len(model.blocks)):
        path = f"blocks.{index}"
        found.append(transformer_block(flow, path, describe(f"{path}.attn", layout), layout, index=index))
    last = [
        class_attention_block(f"{gathering}.{i}", with_class, index=len(found) + i)
        for i in range(len(model.get_submodule(gathering)))
    ]
    return (*with_stage_ends(found), *last)


def _talking_heads(path: str, layout: TokenLayout) -> Mixer:
    """The map is read at the softmax. What `proj_w` makes of it by mixing heads is signed and sums to anything."""
    return Mixer("attention", path, layout, layout)


def _cross_covariance(path: str, layout: TokenLayout) -> Mixer:
    return Mixer("channel attention", path, why_no_map="cross-covariance attention weighs channels by channels")
