"""Variants of timm's families whose modules have other names."""

from __future__ import annotations

import pytest
import torch

import vitlab
from cases import redraw, timm_model


@pytest.mark.parametrize(
    ("name", "family"),
    [("res2net50_26w_4s", "resnet"), ("res2next50", "resnext")],
)
def test_res2net(name: str, family: str) -> None:
    model = timm_model(name, layers=(1, 1, 1, 1), channels=(16, 16, 32, 32))().eval()
    anatomy = vitlab.describe(model, 64)
    assert anatomy.family == family
    assert [block.seam("block.out").layout.grid for block in anatomy.blocks] == [(16, 16), (8, 8), (4, 4), (2, 2)]


def test_vitamin() -> None:
    with torch.device("meta"):
        model = timm_model("vitamin_small_224")()
    anatomy = vitlab.describe(model)
    assert anatomy.seams == ("attn.in", "attn", "attn.out", "mlp.in", "mlp.mid", "mlp.out", "block.out", "stage.out")
    assert {block.mixer.queries.grid for block in anatomy.blocks} == {(14, 14)}


def test_maps_of_vitamin_equal_those_of_timm() -> None:
    model = redraw(timm_model("vitamin_small_224", depth=2, img_size=32)()).eval()
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    own: list[torch.Tensor] = []
    for block in model.blocks:  # timm's explicit softmax, with fused attention disabled
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda module, given, output: own.append(output))
    with torch.no_grad():
        model(images)
        for block in model.blocks:
            block.attn.fused_attn = True
        with vitlab.record(model, input_size=32) as tape:
            model(images)
    assert len(tape) == len(own) == 2
    for name, expected in zip(tape, own, strict=True):
        torch.testing.assert_close(tape[name], expected)
        assert (tape[name].sum(-1) - 1).abs().max() < 1e-5
