"""Hugging Face's plain vision transformers, ViT, DINOv2 and the vision half of CLIP: tokens in (B, N, D)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.adapters import blank_images
from vitlab.adapters.blocks import block_of, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.adapters.hf_layers import attention_name, layers, places
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {
    "hf_vit": "hf/google/vit-base-patch16-224",
    "hf_dinov2": "hf/facebook/dinov2-base",
    "hf_clip": "hf/openai/clip-vit-base-patch32",
}
CLASSES = (
    "transformers.models.vit.modeling_vit.ViTModel",
    "transformers.models.vit.modeling_vit.ViTForImageClassification",
    "transformers.models.vit.modeling_vit.ViTForMaskedImageModeling",
    "transformers.models.dinov2.modeling_dinov2.Dinov2Model",
    "transformers.models.dinov2.modeling_dinov2.Dinov2Backbone",
    "transformers.models.dinov2.modeling_dinov2.Dinov2ForImageClassification",
    "transformers.models.clip.modeling_clip.CLIPModel",
    "transformers.models.clip.modeling_clip.CLIPVisionModel",
    "transformers.models.clip.modeling_clip.CLIPVisionModelWithProjection",
    "transformers.models.clip.modeling_clip.CLIPForImageClassification",
)
ABSENT = {"attn": "queries, keys and values are separate layers, and parts at this seam need timm's packed qkv"}


def family(model: nn.Module) -> str:
    """The family is the package inside transformers."""
    return "hf_" + type(model).__module__.split(".")[2]


def inputs(model: nn.Module, size: tuple[int, int]) -> Mapping[str, Tensor]:
    """Images; the full CLIP model also takes a text, here four padding tokens."""
    images = {"pixel_values": blank_images(model, size)}
    if not hasattr(model, "text_model"):
        return images
    return {"input_ids": torch.zeros(2, 4, dtype=torch.long, device=images["pixel_values"].device), **images}


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """Pre-norm layers; one class token precedes the grid."""
    patches = next(path for path, module in model.named_modules() if isinstance(module, nn.Conv2d) and flow.ran(path))
    layout = TokenLayout(flow.grid(patches), prefix=1)
    result: list[Block] = []
    for path, layer in layers(model, flow):
        mixer = Mixer("attention", f"{path}.{attention_name(layer)}", layout, layout)
        result.append(block_of(path, len(result), 0, mixer, places(flow, path, layer, layout)))
    return with_stage_ends(result)
