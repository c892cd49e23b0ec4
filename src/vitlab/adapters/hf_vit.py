"""Hugging Face's plain vision transformers, such as ViT, DINOv2, SigLIP and CLIP's vision half: tokens (B, N, D)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.adapters import blank_images
from vitlab.adapters.blocks import block_of, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.adapters.hf_layers import attention_name, layers, places, pooling_head
from vitlab.core.anatomy import Block, Mixer, TokenLayout

FAMILIES = {
    "hf_vit": "hf/google/vit-base-patch16-224",
    "hf_dinov2": "hf/facebook/dinov2-base",
    "hf_clip": "hf/openai/clip-vit-base-patch32",
    "hf_siglip": "hf/google/siglip-base-patch16-224",
    "hf_dpt": "hf/Intel/dpt-large",
    "hf_yolos": "hf/hustvl/yolos-tiny",
    "hf_data2vec": "hf/facebook/data2vec-vision-base-ft1k",
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
    "transformers.models.siglip.modeling_siglip.SiglipModel",
    "transformers.models.siglip.modeling_siglip.SiglipVisionModel",
    "transformers.models.siglip.modeling_siglip.SiglipForImageClassification",
    "transformers.models.dpt.modeling_dpt.DPTModel",
    "transformers.models.dpt.modeling_dpt.DPTForDepthEstimation",
    "transformers.models.dpt.modeling_dpt.DPTForSemanticSegmentation",
    "transformers.models.yolos.modeling_yolos.YolosModel",
    "transformers.models.yolos.modeling_yolos.YolosForObjectDetection",
    "transformers.models.data2vec.modeling_data2vec_vision.Data2VecVisionModel",
    "transformers.models.data2vec.modeling_data2vec_vision.Data2VecVisionForImageClassification",
    "transformers.models.data2vec.modeling_data2vec_vision.Data2VecVisionForSemanticSegmentation",
)
ABSENT = {"attn": "queries, keys and values are separate layers, and parts at this seam need timm's packed qkv"}


def family(model: nn.Module) -> str:
    """The family is the package inside transformers."""
    return "hf_" + type(model).__module__.split(".")[2]


def inputs(model: nn.Module, size: tuple[int, int]) -> Mapping[str, Tensor]:
    """Images; the full CLIP and SigLIP models also take a text, here four padding tokens."""
    images = {"pixel_values": blank_images(model, size)}
    if not hasattr(model, "text_model"):
        return images
    return {"input_ids": torch.zeros(2, 4, dtype=torch.long, device=images["pixel_values"].device), **images}


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """Pre-norm layers; a class token precedes the grid, except in SigLIP, and detection tokens follow it in YOLOS."""
    found = list(layers(model, flow))
    grid = _patches(model, flow, found[0][0])
    layout = TokenLayout(grid, prefix=flow.input(found[0][0])[1] - grid[0] * grid[1])
    detection = getattr(model.config, "num_detection_tokens", 0)
    if detection:
        layout = replace(layout, suffix=detection, permutation=tuple(range(grid[0] * grid[1])))
    result: list[Block] = []
    for path, layer in found:
        attention = f"{path}.{attention_name(layer)}"
        mixer = Mixer("attention", attention, layout, layout)
        if detection:
            mixer = Mixer("attention", attention, why_no_map="tokens after the grid are not supported in maps")
        result.append(block_of(path, len(result), 0, mixer, places(flow, path, layer, layout)))
    return with_stage_ends([*result, *pooling_head(model, flow, len(result))])


def _patches(model: nn.Module, flow: Flow, first: str) -> tuple[int, int]:
    """The grid of the last convolution before the first layer; DPT's hybrid form has convolutional stages before it."""
    grid: tuple[int, int] | None = None
    for path in flow.calls:
        if path.startswith(f"{first}."):
            break
        if isinstance(model.get_submodule(path), nn.Conv2d):
            grid = flow.grid(path)
    assert grid is not None, "no convolution before the first layer"
    return grid
