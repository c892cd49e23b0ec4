"""Hugging Face's ViLT: the tokens of a text and of an image in one sequence, text first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.adapters import blank_images
from vitlab.adapters.blocks import block_of, with_stage_ends
from vitlab.adapters.flow import Flow
from vitlab.adapters.hf_layers import layers, places
from vitlab.core.anatomy import Block, Mixer, TokenLayout
from vitlab.modules.token_kinds import IMAGE, PADDING, TEXT, Reader

FAMILIES = {"hf_vilt": "hf/dandelin/vilt-b32-mlm"}
CLASSES = (
    "transformers.models.vilt.modeling_vilt.ViltModel",
    "transformers.models.vilt.modeling_vilt.ViltForMaskedLM",
    "transformers.models.vilt.modeling_vilt.ViltForQuestionAnswering",
    "transformers.models.vilt.modeling_vilt.ViltForImageAndTextRetrieval",
    "transformers.models.vilt.modeling_vilt.ViltForTokenClassification",
)
ABSENT = {"attn": "queries, keys and values are separate layers, and parts at this seam need timm's packed qkv"}

_TEXT = 6  # number of text tokens


def family(model: nn.Module) -> str:
    """One family."""
    return "hf_vilt"


def inputs(model: nn.Module, size: tuple[int, int]) -> Mapping[str, Tensor]:
    """A short text and an image."""
    images = blank_images(model, size)
    return {"input_ids": torch.zeros(2, _TEXT, dtype=torch.long, device=images.device), "pixel_values": images}


def token_kinds(model: nn.Module) -> tuple[str, Reader]:
    """The embeddings join text and image tokens and return them with their mask."""
    path = next(path for path, module in model.named_modules() if type(module).__name__ == "ViltEmbeddings")
    return path, read_kinds


def read_kinds(arguments: tuple[Any, ...], keywords: Mapping[str, Any], output: Any) -> Tensor:
    """The kinds (B, N): text tokens come first, one for each entry of the text's mask; padding has the mask 0.

    The image's class token is an image token.
    """
    text: Tensor = keywords["attention_mask"] if "attention_mask" in keywords else arguments[1]
    mask: Tensor = output[1]
    places = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask == 0, PADDING, torch.where(places < text.shape[1], TEXT, IMAGE))


def blocks(model: Any, flow: Flow) -> tuple[Block, ...]:
    """Pre-norm layers. Text tokens and the image's class token are prefix tokens; their number varies with the text.

    ViLT shuffles the patches in every forward, so that the order of the tokens is not known.
    """
    patches = next(path for path, module in model.named_modules() if isinstance(module, nn.Conv2d))
    layout = TokenLayout(flow.grid(patches), prefix=_TEXT + 1, permutation=(), varying=True)
    result: list[Block] = []
    for path, layer in layers(model, flow):
        mixer = Mixer("attention", f"{path}.attention", layout, layout)
        result.append(block_of(path, len(result), 0, mixer, places(flow, path, layer, layout)))
    return with_stage_ends(result)
