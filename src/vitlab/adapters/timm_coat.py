"""timm's CoaT: serial blocks at four scales, then, except in CoaT-Lite, parallel blocks that combine three scales."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, transformer_block, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {"coat": "timm/coat_tiny"}
CLASSES = ("timm.models.coat.CoaT",)
ABSENT = {
    "attn": "attention is factorised, and takes the size of its map as an argument",
    "mlp.mid": "the three scales of a parallel layer share one MLP",
    "mlp.out": "the three scales of a parallel layer share one MLP",
    "block.out": "a parallel layer returns its scales together",
}


def family(model: nn.Module) -> str:
    """One family for CoaT and CoaT-Lite."""
    return "coat"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The serial blocks of each scale, then one block for every scale of each parallel layer, as a fifth stage."""
    layouts = [TokenLayout(flow.grid(f"patch_embed{scale}.proj"), prefix=1) for scale in (1, 2, 3, 4)]
    result: list[Block] = []
    for stage, layout in enumerate(layouts):
        for position in range(len(model.get_submodule(f"serial_blocks{stage + 1}"))):
            path = f"serial_blocks{stage + 1}.{position}"
            mixer = _factorised(f"{path}.factoratt_crpe")
            block = transformer_block(
                flow, path, mixer, layout, index=len(result), stage=stage, attention="factoratt_crpe"
            )
            result.append(block)
    for layer in range(len(model.parallel_blocks or ())):
        for scale in (2, 3, 4):
            path, layout = f"parallel_blocks.{layer}", layouts[scale - 1]
            mixer = _factorised(f"{path}.factoratt_crpe{scale}")
            result.append(block_of(f"{path}.{scale}", len(result), 4, mixer, _parallel(flow, path, scale, layout)))
    return with_stage_ends(result)


def _factorised(path: str) -> Mixer:
    return Mixer("attention", path, why_no_map="factorised attention multiplies keys and values first, Q(softmax(K)ᵀV)")


def _parallel(flow: Flow, path: str, scale: int, layout: TokenLayout) -> list[Seam]:
    """One scale of a parallel layer: its attention output is also resampled and added to the other scales.

    The three scales share one MLP and are returned together, so that only seams before the MLP are separate.
    """
    return [
        flow.seam("block.in", f"{path}.norm1{scale}", "in", layout),
        flow.seam("attn.in", f"{path}.norm1{scale}", "in", layout),
        flow.seam("attn.out", f"{path}.factoratt_crpe{scale}", "out", layout),
        flow.seam("block.mid", f"{path}.norm2{scale}", "in", layout),
        flow.seam("mlp.in", f"{path}.norm2{scale}", "out", layout),
    ]
