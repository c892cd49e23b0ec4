"""timm's TNT, a transformer in a transformer: each layer mixes the pixels inside every patch, then the patches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, mlp_seams, window_layout
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {"tnt": "timm/tnt_s_patch16_224"}
CLASSES = ("timm.models.tnt.TNT",)
ABSENT = {
    "attn": "attention has no packed qkv",
    "block.out": "a layer returns pixels and patches together",
}


def family(model: nn.Module) -> str:
    """One family."""
    return "tnt"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """Two blocks per layer: `inner` on the pixels, with a window for every patch, and `outer` on the patches."""
    (h, w), (p, q) = model.pixel_embed.grid_size, model.pixel_embed.new_patch_size
    pixels, patches = window_layout((h * p, w * q), (p, q)), TokenLayout((h, w), prefix=model.num_prefix_tokens)
    result: list[Block] = []
    for layer in range(len(model.blocks)):
        path = f"blocks.{layer}"
        inner = Mixer("window attention", f"{path}.attn_in", pixels, pixels)
        places = _places(flow, path, pixels, "norm_in", "attn_in", "norm_mlp_in", "mlp_in")
        block = block_of(f"{path}.inner", len(result), 0, inner, places)
        # a part here would act after the outer half, so that the end of the inner half is a tap, not a seam
        result.append(replace(block, taps=(*block.taps, flow.seam("block.out", path, "out", pixels))))
        outer = Mixer("attention", f"{path}.attn_out", patches, patches)
        places = _places(flow, path, patches, "norm_out", "attn_out", "norm_mlp", "mlp")
        if layer == len(model.blocks) - 1:  # the end of the other layers is the input of no single module
            places += [flow.seam(name, "norm", "in", patches) for name in ("block.out", "stage.out")]
        result.append(block_of(f"{path}.outer", len(result), 0, outer, places))
    return tuple(result)


def _places(flow: Flow, path: str, layout: TokenLayout, norm1: str, attention: str, norm2: str, mlp: str) -> list[Seam]:
    """The places of one half of a layer, except its end."""
    return [
        flow.seam("block.in", f"{path}.{norm1}", "in", layout),
        flow.seam("attn.in", f"{path}.{norm1}", "in", layout),
        flow.seam("attn.out", f"{path}.{attention}", "out", layout),
        flow.seam("block.mid", f"{path}.{norm2}", "in", layout),
        *mlp_seams(flow, f"{path}.{mlp}", layout),
    ]
