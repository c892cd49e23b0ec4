"""timm's TinyViT: attention in windows, a depthwise convolution, then the MLP, after a convolutional stage."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, mlp_seams, window_layout, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {"tiny_vit": "timm/tiny_vit_5m_224"}
CLASSES = ("timm.models.tiny_vit.TinyVit",)
ABSENT = {"attn": "attention works inside windows", "attn.in": "its windows pad the map"}


def family(model: nn.Module) -> str:
    """One family."""
    return "tiny_vit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of all stages except the first, which is convolutional."""
    result: list[Block] = []
    for stage, layers in enumerate(model.stages):
        for position, block in enumerate(layers.blocks):
            path = f"stages.{stage}.blocks.{position}"
            if not hasattr(block, "attn"):
                continue
            _, h, w, _ = flow.input(path)
            windows = window_layout((h, w), (block.window_size,) * 2)
            mixer = Mixer("window attention", f"{path}.attn", windows, windows)
            result.append(block_of(path, len(result), stage - 1, mixer, _places(flow, path, windows)))
    return with_stage_ends(result)


def stem(model: Any, flow: Flow) -> tuple[Seam, ...]:
    """The output of the convolutional stage."""
    path = f"stages.0.blocks.{len(model.stages[0].blocks) - 1}"
    _, _, h, w = flow.output(path)
    return (flow.seam("block.out", path, "out", TokenLayout((h, w), order="BCHW")),)


def _places(flow: Flow, path: str, windows: TokenLayout) -> list[Seam]:
    """conv(x + attention(x)), then x + mlp(x); norms are inside the branches. The input of drop_path1 is the map."""
    full, tokens = TokenLayout(windows.grid, order="BHWD"), TokenLayout(windows.grid)
    tiled = windows.permutation != ()
    return [
        flow.seam("block.in", path, "in", full),
        *([flow.seam("attn.in", f"{path}.attn", "in", windows)] if tiled else []),
        flow.seam("attn.out", f"{path}.drop_path1", "in", full),
        flow.seam("block.mid", f"{path}.mlp", "in", tokens),
        *mlp_seams(flow, f"{path}.mlp", tokens),
        flow.seam("block.out", path, "out", full),
    ]
