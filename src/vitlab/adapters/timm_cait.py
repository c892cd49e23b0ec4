"""timm's CaiT and XCiT: blocks of patch tokens only, then class attention from the class token to them."""

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
ABSENT = {"attn": "CaiT mixes heads around its softmax and XCiT attends over channels, which a replacement would omit"}


def family(model: nn.Module) -> str:
    """Each family has its own class."""
    return type(model).__name__.lower()


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of patch tokens, then those of class attention, which have no seams: they change one token only."""
    describe, class_blocks = (
        (_talking_heads, "blocks_token_only") if family(model) == "cait" else (_cross_covariance, "cls_attn_blocks")
    )
    grid = flow.grid("patch_embed.proj")
    layout, with_class = TokenLayout(grid), TokenLayout(grid, prefix=1)
    result = []
    for index in range(len(model.blocks)):
        path = f"blocks.{index}"
        result.append(transformer_block(flow, path, describe(f"{path}.attn", layout), layout, index=index))
    last = [
        class_attention_block(f"{class_blocks}.{i}", with_class, index=len(result) + i)
        for i in range(len(model.get_submodule(class_blocks)))
    ]
    return (*with_stage_ends(result), *last)


def _talking_heads(path: str, layout: TokenLayout) -> Mixer:
    """The map is the output of the softmax. `proj_w` mixes heads after it, into signed values that do not sum to 1."""
    return Mixer("attention", path, layout, layout)


def _cross_covariance(path: str, layout: TokenLayout) -> Mixer:
    return Mixer("channel attention", path, why_no_map="cross-covariance attention weighs channels by channels")
