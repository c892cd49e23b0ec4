"""The ViT with an extra half block: sizes of the two halves, and what the block adds."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn

from cases import redraw
from cases.model_promises import compiles_and_exports, images, multiply_accumulates, parameters, round_trips, trains
from vitlab.core.errors import VitlabError
from vitlab.models.extra_block_vit import PAPER, ExtraBlockVisionTransformer

TINY = {"img_size": 32, "patch_size": 8, "embed_dim": 12, "depth": 2, "num_heads": 2, "num_classes": 7}
KINDS = {"attention": "vit_small_depth8_extra_attention", "mlp": "vit_small_depth8_extra_mlp"}


def tiny(name: str, seed: int = 0, **settings: object) -> ExtraBlockVisionTransformer:
    return redraw(timm.create_model(name, **{**TINY, **settings}), seed).eval()


def on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return timm.create_model(name)


def test_the_two_extra_blocks_are_nearly_equal() -> None:
    attention, mlp = on_meta(KINDS["attention"]), on_meta(KINDS["mlp"])
    assert parameters(attention.blocks[-1].attn) == 591_360
    assert parameters(mlp.blocks[-1].mlp) == 590_976
    plain = on_meta("vit_small_depth8")
    assert parameters(attention) - parameters(plain) == 591_360 + 768
    assert parameters(mlp) - parameters(plain) == 590_976 + 768
    assert len(plain.blocks) == 8
    assert multiply_accumulates(attention) == pytest.approx(multiply_accumulates(mlp), rel=0.01)


@pytest.mark.parametrize("name", PAPER)
def test_forward_backward_compile_export_round_trip(name: str) -> None:
    for size in ((32, 32), (32, 48)):
        trains(tiny(name), images(*size))
    compiles_and_exports(tiny(name), images(32, 48))
    round_trips(tiny(name, 0), tiny(name, 1), images(32, 32))
    maps = timm.create_model(name, features_only=True, out_indices=[-1], **TINY)(images(32, 48))
    assert maps[0].shape == (2, 12, 4, 6)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_extra_block_adds(kind: str) -> None:
    model, plain = tiny(KINDS[kind]), tiny("vit_small_depth8")
    plain.load_state_dict(
        {name: value for name, value in model.state_dict().items() if not name.startswith("blocks.2")}
    )
    x, extra = images(32, 32), model.blocks[2]
    before = plain.blocks(plain._pos_embed(plain.patch_embed(x)))
    branch = extra.attn(extra.norm1(before)) if kind == "attention" else extra.mlp(extra.norm2(before))
    torch.testing.assert_close(model.forward_features(x), plain.norm(before + branch))
    assert (branch.abs() > 1e-4).any()


def test_settings() -> None:
    model = tiny(KINDS["mlp"], in_chans=1, drop_path_rate=0.3, extra_mlp_ratio=3.0)
    assert model.blocks[2].mlp.fc1.out_features == 36
    assert model.blocks[2].drop_path2.drop_prob == pytest.approx(0.3)
    model.reset_classifier(3)
    assert model(torch.randn(2, 1, 32, 32)).shape == (2, 3)
    with pytest.raises(VitlabError, match="attention, mlp"):
        tiny("vit_small_depth8", extra="conv")
