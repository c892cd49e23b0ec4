"""Hugging Face's SigLIP 2, whose inputs are patches of images, their mask, and the grid of each image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.adapters.blocks import block_of, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.adapters.hf_layers import attention_name, layers, places, pooling_head
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {"hf_siglip2": "hf/google/siglip2-base-patch16-naflex"}
CLASSES = (
    "transformers.models.siglip2.modeling_siglip2.Siglip2VisionModel",
    "transformers.models.siglip2.modeling_siglip2.Siglip2ForImageClassification",
)
ABSENT = {"attn": "queries, keys and values are separate layers, and parts at this seam need timm's packed qkv"}


def family(model: nn.Module) -> str:
    """One family."""
    return "hf_siglip2"


def inputs(model: Any, size: tuple[int, int]) -> Mapping[str, Tensor]:
    """The patches of two blank images, row by row, without padding."""
    config = getattr(model.config, "vision_config", model.config)
    weight = next(model.parameters())
    h, w = size[0] // config.patch_size, size[1] // config.patch_size
    patches = torch.zeros(
        2, h * w, config.num_channels * config.patch_size**2, device=weight.device, dtype=weight.dtype
    )
    return {
        "pixel_values": patches,
        "pixel_attention_mask": torch.ones(2, h * w, dtype=torch.long, device=weight.device),
        "spatial_shapes": torch.tensor([[h, w]] * 2),  # on the CPU: the model reads the numbers
    }


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """Pre-norm layers without a class token."""
    h, w = flow.inputs["spatial_shapes"][0].tolist()
    layout = TokenLayout((h, w))
    result: list[Block] = []
    for path, layer in layers(model, flow):
        mixer = Mixer("attention", f"{path}.{attention_name(layer)}", layout, layout)
        result.append(block_of(path, len(result), 0, mixer, places(flow, path, layer, layout)))
    return with_stage_ends([*result, *pooling_head(model, flow, len(result))])
