"""Blocks of timm's ViT with more than one softmax: two parallel attentions, and the difference of two."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import vitlab
from cases import VIT, redraw, timm_model

IMAGES = 4


def _model(name: str, **settings: object) -> nn.Module:
    return redraw(timm_model(name, **VIT, **settings)()).eval()


def _images() -> Tensor:
    return torch.randn(IMAGES, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def _explicit_map(attention: nn.Module, x: Tensor) -> Tensor:
    """softmax(q kᵀ / √d) of one of timm's attention modules, written out."""
    q, k, _ = attention.qkv(x).unflatten(-1, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)


def test_each_of_two_attentions_has_its_own_map() -> None:
    model = _model("vit_small_patch16_18x2_224")
    anatomy = vitlab.describe(model)
    assert len(anatomy.blocks) == 2 * VIT["depth"]
    with vitlab.record(model) as tape, torch.no_grad():
        model(_images())
    with torch.no_grad():  # the first layer, written out
        x = model._pos_embed(model.patch_embed(_images()))
        for i, branch in enumerate(model.blocks[0].attns):
            expected = _explicit_map(branch.attn, branch.norm(x))
            assert expected.shape[0] == IMAGES
            torch.testing.assert_close(tape[f"blocks.0.attns.{i}"], expected)
    for block in anatomy.blocks:
        assert tape[block.name].shape[0] == IMAGES
        assert (tape[block.name].sum(-1) - 1).abs().max() < 1e-5


def test_blocks_are_counted_by_attention() -> None:
    model = _model("vit_small_patch16_18x2_224")
    vitlab.retrofit(model, nn.Identity(), at="mlp.out", blocks="1:4")
    names = [name for name, module in model.named_modules() if name.endswith("vitlab_identity")]
    assert names == [f"blocks.{path}.mlp.vitlab_identity" for path in ("0.ffns.1", "1.ffns.0", "1.ffns.1")]


class Doubling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def test_a_part_at_the_end_of_a_layer_acts_once() -> None:
    model = _model("vit_small_patch16_18x2_224")
    with torch.no_grad():
        x = model._pos_embed(model.patch_embed(_images()))
        plain = model.blocks[0](x)
        vitlab.retrofit(model, Doubling(), at="block.out", blocks=["blocks.0.attns.1"])
        torch.testing.assert_close(model.blocks[0](x), 2 * plain)


@pytest.mark.parametrize("name", ["vit_dwee_patch16_reg1_gap_256", "vit_dpwee_patch16_reg1_gap_256"])
def test_differential_attention_has_no_map(name: str) -> None:
    model = _model(name)
    anatomy = vitlab.describe(model)
    assert all(block.mixer.queries is None for block in anatomy.blocks)
    assert "attn" not in anatomy.seams  # a replacement would be one softmax
    with vitlab.record(model) as tape, torch.no_grad():
        model(_images())
    with pytest.raises(vitlab.VitlabError, match="differential attention"):
        tape["blocks.0"]
    with pytest.raises(vitlab.VitlabError, match="differential attention"):
        vitlab.measure("attention_entropy", model, [_images()])
