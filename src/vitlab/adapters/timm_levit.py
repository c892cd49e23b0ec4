"""timm's LeViT: attention and MLPs without norms before them, and attention that also downsamples the map."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, mlp_seams, transformer_block, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Order, Seam, TokenLayout

FAMILIES = {"levit": "timm/levit_128s"}
CLASSES = ("timm.models.levit.Levit",)
ABSENT = {"attn": "attention has a position bias, and queries and keys narrower than values"}


def family(model: nn.Module) -> str:
    """One family, on tokens (`levit`) or on maps (`levit_conv`)."""
    return "levit"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of all stages. From the second on, a stage starts with a downsampling block."""
    order: Order = "BCHW" if model.use_conv else "BND"
    grid = flow.grid("stem")
    result: list[Block] = []
    for stage, layers in enumerate(model.stages):
        if not isinstance(layers.downsample, nn.Identity):
            path, stride = f"stages.{stage}.downsample", layers.downsample.attn_downsample.stride
            keys = TokenLayout(grid)
            grid = ((grid[0] - 1) // stride + 1, (grid[1] - 1) // stride + 1)
            mixer = Mixer("attention", f"{path}.attn_downsample", TokenLayout(grid), keys)
            result.append(block_of(path, len(result), stage, mixer, _downsampling(flow, path, mixer, order)))
        layout, tokens = TokenLayout(grid, order=order), TokenLayout(grid)
        for position in range(len(layers.blocks)):
            path = f"stages.{stage}.blocks.{position}"
            mixer = Mixer("attention", f"{path}.attn", tokens, tokens)
            # without norms, the two branches start at attention and at the MLP
            block = transformer_block(
                flow, path, mixer, layout, index=len(result), stage=stage, norm1="attn", norm2="mlp", last="ln2"
            )
            result.append(block)
    return with_stage_ends(result)


def _downsampling(flow: Flow, path: str, mixer: Mixer, order: Order) -> list[Seam]:
    """attention(x), which has no skip path, then x + mlp(x)."""
    assert mixer.queries is not None and mixer.keys is not None
    before, after = TokenLayout(mixer.keys.grid, order=order), TokenLayout(mixer.queries.grid, order=order)
    return [
        flow.seam("block.in", path, "in", before),
        flow.seam("attn.in", mixer.path, "in", before),
        flow.seam("attn.out", mixer.path, "out", after),
        flow.seam("block.mid", f"{path}.mlp", "in", after),
        *mlp_seams(flow, f"{path}.mlp", after, last="ln2"),
        flow.seam("block.out", path, "out", after),
    ]
