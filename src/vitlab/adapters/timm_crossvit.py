"""timm's CrossViT: two ViTs on patches of two sizes; class tokens attend to the other's patches after every stage."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import class_attention_block, holds_packed_qkv, transformer_block
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {"crossvit": "timm/crossvit_9_240"}
CLASSES = ("timm.models.crossvit.CrossVit",)
ABSENT = {"stage.out": "a stage returns a list of both branches, whose class tokens are exchanged after its last block"}


def family(model: nn.Module) -> str:
    """One family."""
    return "crossvit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of a stage, branch by branch, then its fusion: class attention to the other branch's patches."""
    layouts = [TokenLayout(flow.grid(f"patch_embed.{i}.proj"), prefix=1) for i in range(model.num_branches)]
    result: list[Block] = []
    for stage, scales in enumerate(model.blocks):
        for branch, layers in enumerate(scales.blocks):
            for position, block in enumerate(layers):
                path, layout = f"blocks.{stage}.blocks.{branch}.{position}", layouts[branch]
                mixer = Mixer("attention", f"{path}.attn", layout, layout)
                replaceable = holds_packed_qkv(block.attn)
                result.append(
                    transformer_block(
                        flow, path, mixer, layout, index=len(result), stage=stage, replaceable=replaceable
                    )
                )
        for branch, fusion in enumerate(scales.fusion):
            path = f"blocks.{stage}.fusion.{branch}" + (".0" if isinstance(fusion, nn.Sequential) else "")
            other = layouts[(branch + 1) % model.num_branches]
            result.append(class_attention_block(path, other, index=len(result), stage=stage))
    return tuple(result)
