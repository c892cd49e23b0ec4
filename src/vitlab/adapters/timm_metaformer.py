"""timm's MetaFormers: PoolFormer (pooling), ConvFormer (convolution) and CAFormer (convolution, then attention)."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, holds_packed_qkv, mlp_seams, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {
    "poolformer": "timm/poolformer_s12",
    "convformer": "timm/convformer_s18",
    "caformer": "timm/caformer_s18",
}
CLASSES = ("timm.models.metaformer.MetaFormer",)
ABSENT = {
    "attn": "pooling or a convolution mixes the tokens, not attention",
    "attn.in": "pooling or a convolution mixes the tokens, not attention",
    "attn.out": "pooling or a convolution mixes the tokens, not attention",
}


def family(model: Any) -> str:
    """The token mixer of the last stage decides, where CAFormer has attention."""
    last = type(model.stages[-1].blocks[-1].token_mixer).__name__
    return {"Pooling": "poolformer", "Attention": "caformer"}.get(last, "convformer")


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """Pre-norm blocks; maps in (B, C, h, w), except in stages with attention, whose tokens are (B, N, D)."""
    result: list[Block] = []
    for stage, layers in enumerate(model.stages):
        grid = flow.grid(f"stages.{stage}.downsample")
        layout = TokenLayout(grid, order="BCHW" if layers.use_nchw else "BND")
        for position, block in enumerate(layers.blocks):
            path = f"stages.{stage}.blocks.{position}"
            places = [
                flow.seam("block.in", path, "in", layout),
                *_attention(flow, path, block.token_mixer, layout),
                flow.seam("block.mid", f"{path}.norm2", "in", layout),
                *mlp_seams(flow, f"{path}.mlp", layout),
                flow.seam("block.out", path, "out", layout),
            ]
            result.append(block_of(path, len(result), stage, _mixer(path, block.token_mixer, layout), places))
    return with_stage_ends(result)


def _mixer(path: str, token_mixer: nn.Module, layout: TokenLayout) -> Mixer:
    path = f"{path}.token_mixer"
    if type(token_mixer).__name__ == "Attention":
        return Mixer("attention", path, layout, layout)
    if type(token_mixer).__name__ == "Pooling":
        return Mixer(
            "pooling",
            path,
            why_no_map="every token is replaced by the mean of its neighbours, independent of the image",
        )
    return Mixer("conv", path, why_no_map="a convolution mixes its tokens")


def _attention(flow: Flow, path: str, token_mixer: nn.Module, layout: TokenLayout) -> list[Seam]:
    if type(token_mixer).__name__ != "Attention":
        return []
    replaceable = holds_packed_qkv(token_mixer)
    return [
        flow.seam("attn.in", f"{path}.norm1", "in", layout),
        *([flow.seam("attn", f"{path}.token_mixer", "replace", layout)] if replaceable else []),
        flow.seam("attn.out", f"{path}.token_mixer", "out", layout),
    ]
