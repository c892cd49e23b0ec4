"""timm's MViTv2: attention pools its queries (at the start of a stage) and its keys, and so changes the map."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, mlp_seams, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {"mvitv2": "timm/mvitv2_tiny"}
CLASSES = ("timm.models.mvitv2.MultiScaleVit",)
ABSENT = {"attn": "attention pools its queries and keys"}


def family(model: nn.Module) -> str:
    """One family."""
    return "mvitv2"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The blocks of all stages."""
    result: list[Block] = []
    for stage, layers in enumerate(model.stages):
        for position, block in enumerate(layers.blocks):
            path = f"stages.{stage}.blocks.{position}"
            before = TokenLayout(tuple(flow.argument(path, 1, "feat_size")), prefix=model.num_prefix_tokens)
            queries = _pooled(flow, f"{path}.attn.pool_q", before)
            mixer = Mixer("attention", f"{path}.attn", queries, _pooled(flow, f"{path}.attn.pool_k", before))
            result.append(block_of(path, len(result), stage, mixer, _places(flow, path, block, before, queries)))
    return with_stage_ends(result)


def _pooled(flow: Flow, pool: str, before: TokenLayout) -> TokenLayout:
    return TokenLayout(flow.grid(pool), prefix=before.prefix) if flow.ran(pool) else before


def _places(flow: Flow, path: str, block: Any, before: TokenLayout, after: TokenLayout) -> list[Seam]:
    """A pre-norm block; where it widens, norm1 feeds the skip path too, and `attn.in` is at the attention module."""
    entry = "norm1" if block.shortcut_proj_attn is None else "attn"
    return [
        flow.seam("block.in", path, "in", before),
        flow.seam("attn.in", f"{path}.{entry}", "in", before),
        flow.seam("attn.out", f"{path}.drop_path1", "in", after),
        flow.seam("block.mid", f"{path}.norm2", "in", after),
        *mlp_seams(flow, f"{path}.mlp", after),
        flow.seam("block.out", path, "out", after),
    ]
