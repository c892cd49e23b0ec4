"""A part without tensors has a key in the state dict, and loading checks for it."""

from __future__ import annotations

import copy
import logging
import pickle
import warnings
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import vitlab
from cases import VIT, redraw
from vitlab.core import plugins


def plain_model() -> nn.Module:
    return redraw(timm.create_model("deit_tiny_patch16_224", num_classes=7, **VIT)).eval()


MARKERS = {
    "ContextBroadcast": "blocks.{}.mlp.vitlab_context_broadcast.marker",
    "GatedContextBroadcast": "blocks.{}.mlp.vitlab_gated_context_broadcast.marker",
    "AveragePooling(kernel=3)": "blocks.{}.norm1.vitlab_average_pooling.marker",
    "LocalAttention(kernel=3)": "blocks.{}.attn.vitlab_local_attention",
    "UniformHead(form='A')": "blocks.{}.attn.vitlab_uniform_head",
}


@pytest.mark.parametrize("part", MARKERS)
def test_a_fitted_checkpoint_does_not_load_into_a_plain_model(part: str) -> None:
    plain, fitted = plain_model(), vitlab.retrofit(plain_model(), part)
    expected = {MARKERS[part].format(block) for block in range(len(plain.blocks))}
    assert set(fitted.state_dict()) - set(plain.state_dict()) == expected
    assert all(fitted.state_dict()[name].numel() == 0 for name in expected)
    with pytest.raises(RuntimeError, match=MARKERS[part].format(0)):
        plain.load_state_dict(fitted.state_dict())


@pytest.mark.parametrize("part", MARKERS)
def test_a_plain_checkpoint_loads_into_a_fitted_model_with_a_warning(part: str) -> None:
    plain, fitted = plain_model(), vitlab.retrofit(redraw(plain_model(), seed=9), part)
    state = plain.state_dict()
    with pytest.warns(UserWarning, match=f"no marker of {part.partition('(')[0]}"):
        fitted.load_state_dict(state)
    assert set(state) == set(plain.state_dict()), "the state dict of the caller is left alone"
    assert torch.equal(fitted.head.weight, plain.head.weight)
    with pytest.warns(UserWarning, match="no marker"):
        assert fitted.load_state_dict(state, strict=False) == ([], [])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_load_each_others_weights_without_warnings(copied: object, tmp_path: Path) -> None:
    model = vitlab.retrofit(plain_model(), "ContextBroadcast")
    other = copied(model)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    with pytest.warns(UserWarning, match="no marker"):
        other.load_state_dict(plain_model().state_dict())


def test_every_part_is_in_the_state_dict() -> None:
    """Every part adds a key."""
    for name in plugins.parts():
        plain = plain_model()
        try:
            fitted = vitlab.retrofit(plain_model(), name)
        except vitlab.VitlabError as error:
            assert "attention" in str(error) or "seam" in str(error)
            continue
        assert set(fitted.state_dict()) - set(plain.state_dict()), name
        assert list(vitlab.restore(fitted).state_dict()) == list(plain.state_dict()), name


class Marked(nn.Module):
    """A part with an attribute that has the name of a marker."""

    def __init__(self) -> None:
        super().__init__()
        self.marker = 3.0

    def forward(self, x: Tensor) -> Tensor:
        return self.marker * x


def test_an_attribute_of_the_same_name_is_kept() -> None:
    model = vitlab.retrofit(plain_model(), Marked(), at="mlp.out", blocks=[0])
    assert model.blocks[0].mlp.vitlab_marked.marker == 3.0
    assert "blocks.0.mlp.vitlab_marked.marker_" in model.state_dict()


def test_hugging_face_warns_about_a_missing_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    size = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 48}
    config = transformers.ViTConfig(**size, image_size=32, patch_size=8, num_labels=7)
    fitted = vitlab.retrofit(transformers.ViTForImageClassification(config).eval(), "ContextBroadcast")
    fitted.save_pretrained(tmp_path)
    assert any("vitlab_context_broadcast.marker" in name for name in load_file(tmp_path / "model.safetensors"))
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    plain, about = transformers.ViTForImageClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert any("vitlab_context_broadcast.marker" in name for name in about["unexpected_keys"])
    assert "vitlab_context_broadcast.marker" in caplog.text
    images = torch.randn(2, 3, 32, 32)
    vitlab.retrofit(plain.eval(), "ContextBroadcast")
    assert torch.equal(plain(images).logits, fitted(images).logits)
