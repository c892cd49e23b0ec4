"""The same blocks are found in a bare Hugging Face model and inside its wrappers, wherever those put them."""

from __future__ import annotations

import pytest

import vitlab
from cases.others import VIT, hugging_face
from vitlab.adapters import hf_vilt

SMALL = {**VIT, "intermediate_size": 48}
CLIP = {"vision_config": SMALL, "text_config": {**SMALL, "vocab_size": 50}}
VILT = {**SMALL, "vocab_size": 50}


@pytest.mark.parametrize(
    ("model", "config", "settings", "prefix"),
    [
        ("ViTModel", "ViTConfig", SMALL, ""),
        ("ViTForImageClassification", "ViTConfig", SMALL, "vit."),
        ("Dinov2Model", "Dinov2Config", VIT, ""),
        ("Dinov2ForImageClassification", "Dinov2Config", {**VIT, "use_swiglu_ffn": True}, "dinov2."),
        ("CLIPVisionModel", "CLIPVisionConfig", SMALL, ""),
        ("CLIPVisionModelWithProjection", "CLIPVisionConfig", SMALL, "vision_model."),
        ("CLIPForImageClassification", "CLIPConfig", CLIP, "vision_model."),
        ("CLIPModel", "CLIPConfig", CLIP, "vision_model."),
        ("ViltModel", "ViltConfig", VILT, ""),
        ("ViltForMaskedLM", "ViltConfig", VILT, "vilt."),
        ("ViltForQuestionAnswering", "ViltConfig", VILT, "vilt."),
    ],
)
def test_wrappers(model: str, config: str, settings: dict[str, object], prefix: str) -> None:
    anatomy = vitlab.describe(hugging_face(model, config, **settings)(), 32)
    assert len(anatomy.blocks) == VIT["num_hidden_layers"]
    # Older versions of transformers keep one more wrapper around the vision half of CLIP.
    assert all(block.name.startswith((prefix, "vision_model.")) for block in anatomy.blocks)
    assert anatomy.seams == ("attn.in", "attn.out", "mlp.in", "mlp.mid", "mlp.out", "block.out", "stage.out")
    layout = anatomy.blocks[0].mixer.queries
    assert layout.tokens - layout.prefix == 16
    assert layout.prefix == (1 + hf_vilt._TEXT if model.startswith("Vilt") else 1)
