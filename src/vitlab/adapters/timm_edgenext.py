"""timm's EdgeNeXt: depthwise convolutions, and channel attention between split convolutions and an MLP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, mlp_seams, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {"edgenext": "timm/edgenext_xx_small"}
CLASSES = ("timm.models.edgenext.EdgeNeXt",)
ABSENT = {"attn": "attention is between channels", "attn.in": "a block without attention is a convolution"}


def family(model: nn.Module) -> str:
    """One family."""
    return "edgenext"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of all stages: convolutions, and at the end of a stage channel attention."""
    result: list[Block] = []
    for stage, layers in enumerate(model.stages):
        for position, block in enumerate(layers.blocks):
            path = f"stages.{stage}.blocks.{position}"
            if hasattr(block, "xca"):
                why = "its softmax is between channels, so that there is no map between tokens"
                mixer = Mixer("channel attention", f"{path}.xca", why_no_map=why)
            else:
                mixer = Mixer("conv", f"{path}.conv_dw", why_no_map="a convolution mixes its tokens")
            result.append(block_of(path, len(result), stage, mixer, _places(flow, path, block)))
    return with_stage_ends(result)


def _places(flow: Flow, path: str, block: Any) -> list[Seam]:
    """One residual branch: convolutions, channel attention with its own skip path, MLP. So there is no `block.mid`."""
    _, _, h, w = flow.output(path)
    after, tokens = TokenLayout((h, w), order="BCHW"), TokenLayout((h, w))
    _, _, top, left = flow.input(path)
    attention: list[Seam] = []
    if hasattr(block, "xca"):
        attention = [
            flow.seam("attn.in", f"{path}.norm_xca", "in", tokens),
            flow.seam("attn.out", f"{path}.xca", "out", tokens),
        ]
    return [
        flow.seam("block.in", path, "in", TokenLayout((top, left), order="BCHW")),
        *attention,
        *mlp_seams(flow, f"{path}.mlp", replace(after, order="BHWD")),
        flow.seam("block.out", path, "out", after),
    ]
