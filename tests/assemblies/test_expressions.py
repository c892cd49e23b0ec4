"""Assemblies from model expressions: nested backbones, files, weights, and one-line errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import vitlab
from vitlab import zoo
from vitlab.core.errors import VitlabError
from vitlab.identity import identify

VIT = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=4, num_heads=3)"
UPERNET = f"vitlab/upernet(backbone={VIT!r}, classes=3, width=8, auxiliary_width=4, size=(32, 48))"
IMAGES = torch.randn(2, 3, 32, 48, generator=torch.Generator().manual_seed(0))


def test_parts_after_an_assembly_go_into_its_backbone() -> None:
    model = vitlab.load(UPERNET + " | ContextBroadcast(blocks='upper')", seed=0)
    assert [part.block for part in vitlab.parts(model)] == ["backbone.blocks.2", "backbone.blocks.3"]
    assert identify(model).origin == "random"


def test_a_file_of_an_assembly_loads_without_the_backbone_weights(tmp_path: Path) -> None:
    """The weights of the backbone's own file are dropped from the expression that rebuilds the model."""
    source = tmp_path / "backbone.safetensors"
    zoo.save(vitlab.load(VIT, seed=1), VIT, str(source))
    weighted = VIT[:-1] + f", weights={str(source)!r})"
    text = f"vitlab/upernet(backbone={weighted!r}, classes=3, width=8) | ScaledContextBroadcast()"
    model = vitlab.load(text, seed=0).eval()
    assert identify(model).origin == f"file: {source} (random head)"
    builder = zoo.builder_of(text)
    assert "weights" not in builder
    zoo.save(model, builder, str(tmp_path / "model.safetensors"))
    source.unlink()
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(vitlab.load(f"file/{tmp_path}/model.safetensors").eval()(images), model(images))


def test_pretrained_weights_inside_the_backbone_are_dropped_by_the_builder() -> None:
    text = "vitlab/segformer(backbone='timm/deit_tiny_patch16_224(pretrained=True)', classes=4) | ContextBroadcast()"
    expected = "vitlab/segformer(backbone='timm/deit_tiny_patch16_224', classes=4) | ContextBroadcast()"
    assert zoo.builder_of(text) == expected


def test_weights_of_a_file_load_into_an_assembly(tmp_path: Path) -> None:
    model = vitlab.load(UPERNET, seed=3).eval()
    zoo.save(model, UPERNET, str(tmp_path / "m.safetensors"))
    other = vitlab.load(UPERNET[:-1] + f", weights={str(tmp_path / 'm.safetensors')!r})").eval()
    torch.testing.assert_close(other(IMAGES), model(IMAGES))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vitlab/upernet(classes=3)", "needs a backbone"),
        (f"vitlab/upernet(backbone={VIT!r}, depth=3)", "setting of vitlab/upernet"),
        (f"vitlab/upernet(backbone={VIT!r}, size='big')", r"size='big'\): expected \(an integer from 1"),
        (f"vitlab/upernet(backbone={VIT!r}, taps=(0, 9, 1, 2))", "invalid taps"),
        (f"vitlab/upernet(backbone={UPERNET!r})", "is an assembly itself"),
        (f"vitlab/upernett(backbone={VIT!r})", "similar names: upernet"),
    ],
)
def test_mistakes_are_one_line_errors(text: str, message: str) -> None:
    with pytest.raises(VitlabError, match=message) as caught:
        vitlab.load(text)
    assert "\n" not in str(caught.value)


def test_a_trained_classifier_with_parts_is_a_backbone(tmp_path: Path) -> None:
    """The protocol of CB Table 6: the part is trained before; the builder has it inside the backbone's expression."""
    text = VIT + " | ScaledContextBroadcast(blocks='upper')"
    classifier = vitlab.load(text, seed=1)
    zoo.save(classifier, text, str(tmp_path / "model.safetensors"))
    expression = f"vitlab/upernet(backbone='file/{tmp_path}/model.safetensors', classes=3, width=8, size=(32, 48))"
    model = vitlab.load(expression, seed=0).eval()
    assert [part.block for part in vitlab.parts(model)] == ["backbone.blocks.2", "backbone.blocks.3"]
    assert torch.equal(model.backbone.blocks[0].attn.qkv.weight, classifier.blocks[0].attn.qkv.weight)
    builder = zoo.builder_of(expression)
    assert "file/" not in builder
    zoo.save(model, builder, str(tmp_path / "upernet.safetensors"))
    torch.testing.assert_close(vitlab.load(f"file/{tmp_path}/upernet.safetensors").eval()(IMAGES), model(IMAGES))
