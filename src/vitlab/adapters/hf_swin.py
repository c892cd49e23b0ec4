"""Hugging Face's Swin, Swin-V2 and Donut's Swin: attention in shifted windows; tokens are (B, N, D) outside of them."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, window_layout, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.adapters.hf_layers import layers, places
from vitlab.core.anatomy import Block, Mixer, Seam, TokenLayout

FAMILIES = {
    "hf_swin": "hf/microsoft/swin-tiny-patch4-window7-224",
    "hf_swinv2": "hf/microsoft/swinv2-tiny-patch4-window8-256",
}
CLASSES = (
    "transformers.models.swin.modeling_swin.SwinModel",
    "transformers.models.swin.modeling_swin.SwinForImageClassification",
    "transformers.models.swin.modeling_swin.SwinBackbone",
    "transformers.models.swin.modeling_swin.SwinForMaskedImageModeling",
    "transformers.models.swinv2.modeling_swinv2.Swinv2Model",
    "transformers.models.swinv2.modeling_swinv2.Swinv2ForImageClassification",
    "transformers.models.swinv2.modeling_swinv2.Swinv2Backbone",
    "transformers.models.swinv2.modeling_swinv2.Swinv2ForMaskedImageModeling",
    "transformers.models.donut.modeling_donut_swin.DonutSwinModel",
    "transformers.models.donut.modeling_donut_swin.DonutSwinForImageClassification",
    "transformers.models.maskformer.modeling_maskformer_swin.MaskFormerSwinModel",
    "transformers.models.maskformer.modeling_maskformer_swin.MaskFormerSwinBackbone",
)
ABSENT = {
    "attn": "attention happens inside windows",
    "attn.in": "Swin-V2 norms after attention, and its windows pad the map",
}


def family(model: nn.Module) -> str:
    """Swin-V2 norms after attention; Donut's Swin is a Swin."""
    return "hf_swinv2" if ".swinv2." in type(model).__module__ else "hf_swin"


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """The layers of all stages; every second one has shifted windows, if the map is larger than a window."""
    result: list[Block] = []
    stages: list[str] = []
    for path, layer in layers(model, flow):
        stage = path.rpartition(".blocks.")[0]
        if stage not in stages:
            stages.append(stage)
        h, w = flow.argument(path, 1, "input_dimensions")
        window, shift = layer.window_size, layer.shift_size
        shrinks = hasattr(layer, "set_shift_and_window_size")  # to the map, in every forward; Swin-V2 when it is built
        if shrinks and not flow.argument(path, 2, "always_partition") and min(h, w) <= window:
            window, shift = min(h, w), 0
        windows = window_layout((h, w), (window, window), (shift, shift))
        mixer = Mixer("window attention", f"{path}.attention", windows, windows)
        if family(model) == "hf_swinv2":
            seams = _post_norm(flow, path, windows)
        else:
            seams = places(flow, path, layer, TokenLayout((h, w)), windowed=True)
        result.append(block_of(path, len(result), stages.index(stage), mixer, seams))
    return with_stage_ends(result)


def _post_norm(flow: Flow, path: str, windows: TokenLayout) -> list[Seam]:
    """Swin-V2: x + norm(attention(x)), x + norm(mlp(x)). The input of attention exists only in windows."""
    full = TokenLayout(windows.grid)
    tiled = windows.permutation != ()
    return [
        flow.seam("block.in", path, "in", full),
        *([flow.seam("attn.in", f"{path}.attention", "in", windows)] if tiled else []),
        flow.seam("attn.out", f"{path}.layernorm_before", "in", full),
        flow.seam("block.mid", f"{path}.intermediate", "in", full),
        flow.seam("mlp.in", f"{path}.intermediate", "in", full),
        flow.seam("mlp.mid", f"{path}.output.dense", "in", full),
        flow.seam("mlp.out", f"{path}.output.dense", "out", full),
        flow.seam("block.out", path, "out", full),
    ]
