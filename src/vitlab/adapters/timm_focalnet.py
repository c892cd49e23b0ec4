"""timm's FocalNet: focal modulation, that is gated sums of depthwise convolutions, in place of attention."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, mlp_seams, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {"focalnet": "timm/focalnet_tiny_srf"}
CLASSES = ("timm.models.focalnet.FocalNet",)
_WHY = "focal modulation mixes the tokens, not attention"
ABSENT = {"attn": _WHY}


def family(model: nn.Module) -> str:
    """One family."""
    return "focalnet"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of all stages, on maps (B, C, h, w)."""
    result: list[Block] = []
    for stage, layers in enumerate(model.layers):
        for position, _ in enumerate(layers.blocks):
            path = f"layers.{stage}.blocks.{position}"
            _, _, h, w = flow.input(path)
            mixer = Mixer("conv", f"{path}.modulation", why_no_map=_WHY)
            result.append(
                block_of(path, len(result), stage, mixer, _places(flow, path, TokenLayout((h, w), order="BCHW")))
            )
    return with_stage_ends(result)


def _places(flow: Flow, path: str, layout: TokenLayout) -> list[Seam]:
    """x + modulation(norm1(x)), x + mlp(norm2(x)); norm1 and norm2 are identities where norms follow the branches."""
    return [
        flow.seam("block.in", path, "in", layout),
        flow.seam("attn.in", f"{path}.norm1", "in", layout),
        flow.seam("attn.out", f"{path}.modulation", "out", layout),
        flow.seam("block.mid", f"{path}.norm2", "in", layout),
        *mlp_seams(flow, f"{path}.mlp", layout),
        flow.seam("block.out", path, "out", layout),
    ]
