"""timm's Hiera of SAM 2: maps (B, h, w, D), attention in windows or global, queries pooled at the start of a stage."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, mlp_seams, window_layout, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {"hieradet": "timm/sam2_hiera_tiny"}
CLASSES = ("timm.models.hieradet_sam2.HieraDet",)
ABSENT = {"attn": "attention takes maps, in windows, and pools its queries"}


def family(model: nn.Module) -> str:
    """One family."""
    return "hieradet"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """All blocks; the first of a stage pools its queries and so the map."""
    result: list[Block] = []
    stage = 0
    for index, block in enumerate(model.blocks):
        path = f"blocks.{index}"
        before, after = (_map(shape) for shape in (flow.input(path), flow.output(path)))
        stage += int(index > 0 and before.grid != after.grid)
        mixer = _mixer(f"{path}.attn", block, before, after)
        result.append(block_of(path, index, stage, mixer, _places(flow, path, block, before, after)))
    return with_stage_ends(result)


def _map(shape: tuple[int, ...]) -> TokenLayout:
    return TokenLayout((shape[1], shape[2]), order="BHWD")


def _mixer(path: str, block: Any, before: TokenLayout, after: TokenLayout) -> Mixer:
    """Queries of a window are pooled inside it, so that windows of queries are smaller."""
    if not block.is_windowed:
        return Mixer("attention", path, TokenLayout(after.grid), TokenLayout(before.grid))
    window, stride = block.window_size, block.q_stride or (1, 1)
    pooled = (window[0] // stride[0], window[1] // stride[1])
    return Mixer("window attention", path, window_layout(after.grid, pooled), window_layout(before.grid, window))


def _places(flow: Flow, path: str, block: Any, before: TokenLayout, after: TokenLayout) -> list[Seam]:
    """A pre-norm block. Where it widens, norm1 feeds the skip path too, and there is no `attn.in`.

    Windows are merged before the layer scale ls1, whose input is the full map.
    """
    widens = block.dim != block.dim_out
    return [
        flow.seam("block.in", path, "in", before),
        *([] if widens else [flow.seam("attn.in", f"{path}.norm1", "in", before)]),
        flow.seam("attn.out", f"{path}.ls1", "in", after),
        flow.seam("block.mid", f"{path}.norm2", "in", after),
        *mlp_seams(flow, f"{path}.mlp", after),
        flow.seam("block.out", path, "out", after),
    ]
