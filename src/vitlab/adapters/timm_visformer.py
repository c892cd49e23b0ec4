"""timm's Visformer: convolutions in the first stage, attention in the others, on (B, C, h, w) maps throughout."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, mlp_seams, transformer_block, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {"visformer": "timm/visformer_tiny"}
CLASSES = ("timm.models.visformer.Visformer",)
ABSENT = {"attn": "queries, keys and values are computed by a convolution on a map"}


def family(model: nn.Module) -> str:
    """One family."""
    return "visformer"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of the three stages; those without attention mix tokens by a convolution inside the MLP."""
    result: list[Block] = []
    for stage in range(3):
        for position, block in enumerate(model.get_submodule(f"stage{stage + 1}")):
            path = f"stage{stage + 1}.{position}"
            _, _, h, w = flow.input(path)
            layout, tokens = TokenLayout((h, w), order="BCHW"), TokenLayout((h, w))
            if block.attn is None:
                mixer = Mixer("conv", f"{path}.mlp", why_no_map="this block has a convolution and no attention")
                result.append(block_of(path, len(result), stage, mixer, _convolution(flow, path, layout)))
                continue
            mixer = Mixer("attention", f"{path}.attn", tokens, tokens)
            result.append(transformer_block(flow, path, mixer, layout, index=len(result), stage=stage, last="conv3"))
    return with_stage_ends(result)


def _convolution(flow: Flow, path: str, layout: TokenLayout) -> list[Seam]:
    return [
        flow.seam("block.in", f"{path}.norm2", "in", layout),
        *mlp_seams(flow, f"{path}.mlp", layout, last="conv3"),
        flow.seam("block.out", path, "out", layout),
    ]
