"""vitlab's T2T-ViT: two narrow transformer layers that compute the tokens, one stage each, then a plain ViT."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from vitlab.adapters.blocks import block_of, holds_packed_qkv, mlp_seams, transformer_block, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {"t2t_vit": "vitlab/t2t_vit_t_24"}
CLASSES = ("vitlab.models.t2t_vit.TokensToTokenVisionTransformer",)
ABSENT: dict[str, str] = {}


def family(model: nn.Module) -> str:
    """One family."""
    return "t2t_vit"


def inputs(model: Any, size: tuple[int, int]) -> dict[str, Tensor]:
    """Two blank images. The model has no convolution to read the channels from, so that `in_chans` is used."""
    return {"": model.pos_embed.new_zeros(2, model.in_chans, *size)}


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The layers of the tokens-to-token module and the blocks after it."""
    result = [_token_layer(flow, number) for number in (1, 2)]
    layout = TokenLayout(flow.grid("patch_embed.split3"), prefix=model.num_prefix_tokens)
    for position, block in enumerate(model.blocks):
        path = f"blocks.{position}"
        mixer = Mixer("attention", f"{path}.attn", layout, layout)
        replaceable = holds_packed_qkv(block.attn)
        result.append(transformer_block(flow, path, mixer, layout, index=len(result), stage=2, replaceable=replaceable))
    return with_stage_ends(result)


def _token_layer(flow: Flow, number: int) -> Block:
    """A layer without `attn.in`: its values are also its skip path, which a part there would change."""
    path, layout = f"patch_embed.layer{number}", TokenLayout(flow.grid(f"patch_embed.split{number}"))
    places = [
        flow.seam("block.in", f"{path}.norm1", "in", layout),
        flow.seam("attn.out", f"{path}.attn.proj", "out", layout),
        flow.seam("block.mid", f"{path}.norm2", "in", layout),
        *mlp_seams(flow, f"{path}.mlp", layout),
        flow.seam("block.out", path, "out", layout),
    ]
    return block_of(path, number - 1, number - 1, Mixer("attention", f"{path}.attn", layout, layout), places)
