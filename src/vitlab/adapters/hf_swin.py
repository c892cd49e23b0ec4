"""Hugging Face's Swin: attention in shifted windows; tokens are (B, N, D) outside of them."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitlab.adapters.blocks import block_of, window_layout, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.adapters.hf_layers import layers, places
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {"hf_swin": "hf/microsoft/swin-tiny-patch4-window7-224"}
CLASSES = (
    "transformers.models.swin.modeling_swin.SwinModel",
    "transformers.models.swin.modeling_swin.SwinForImageClassification",
    "transformers.models.swin.modeling_swin.SwinBackbone",
    "transformers.models.swin.modeling_swin.SwinForMaskedImageModeling",
)
ABSENT = {"attn": "attention happens inside windows"}


def family(model: nn.Module) -> str:
    """One family."""
    return "hf_swin"


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
        if not flow.argument(path, 2, "always_partition") and min(h, w) <= window:  # backbones always partition
            window, shift = min(h, w), 0
        windows = window_layout((h, w), (window, window), (shift, shift))
        mixer = Mixer("window attention", f"{path}.attention", windows, windows)
        seams = places(flow, path, layer, TokenLayout((h, w)), windowed=True)
        result.append(block_of(path, len(result), stages.index(stage), mixer, seams))
    return with_stage_ends(result)
