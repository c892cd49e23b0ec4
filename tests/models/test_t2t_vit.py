"""T2T-ViT: counts, the soft split against a loop, the narrow attention and the position table in closed form."""

from __future__ import annotations

import math

import pytest
import timm
import torch
from torch import nn

import vitlab
from cases import redraw
from cases.model_promises import compiles_and_exports, images, multiply_accumulates, parameters, round_trips, trains
from vitlab.models.t2t_vit import (
    PAPER,
    SoftSplit,
    TokenAttention,
    TokensToTokenVisionTransformer,
    sinusoid_table,
)

TINY = {"img_size": 64, "token_dim": 8, "embed_dim": 12, "depth": 2, "num_heads": 2, "num_classes": 7}


def tiny(seed: int = 0, **settings: object) -> TokensToTokenVisionTransformer:
    return redraw(timm.create_model("t2t_vit_t_24", **{**TINY, **settings}), seed).eval()


def test_counts() -> None:
    with torch.device("meta"):
        model = timm.create_model("t2t_vit_t_24")
    paper = PAPER["t2t_vit_t_24"]
    assert parameters(model) == paper["exact_params"] == 64_000_590
    assert round((parameters(model) + model.pos_embed.numel()) / 1e6, 1) == paper["params_m"]
    assert round(multiply_accumulates(model), 1) == paper["macs_g"]


@pytest.mark.parametrize(("size", "grid"), [((64, 64), (4, 4)), ((48, 64), (3, 4)), ((50, 70), (3, 5))])
def test_any_size_forward_backward_and_features(size: tuple[int, int], grid: tuple[int, int]) -> None:
    trains(tiny(), images(*size))
    (last,) = timm.create_model("t2t_vit_t_24", features_only=True, out_indices=[1], **TINY)(images(*size))
    assert last.shape == (2, 12, *grid)


def test_compile_export_and_round_trip() -> None:
    compiles_and_exports(tiny(), images(48, 64))
    round_trips(tiny(0), tiny(1), images(64, 64))


@pytest.mark.parametrize("setting", [(7, 4, 2), (3, 2, 1)])
def test_soft_split_by_a_loop(setting: tuple[int, int, int]) -> None:
    kernel, stride, padding = setting
    x = torch.randn(1, 2, 12, 9)
    tokens = SoftSplit(*setting)(x)
    for i in range(tokens.shape[2]):
        for j in range(tokens.shape[3]):
            for c in range(2):
                for a in range(kernel):
                    for b in range(kernel):
                        y, z = i * stride - padding + a, j * stride - padding + b
                        inside = 0 <= y < 12 and 0 <= z < 9
                        assert tokens[0, (c * kernel + a) * kernel + b, i, j] == (x[0, c, y, z] if inside else 0)


def test_narrow_attention_adds_the_values_and_scales_by_the_input_width() -> None:
    """The published model divides the logits by the square root of the input width, 5 here, not of the query's, 3."""
    attention = TokenAttention(5, 3)
    torch.manual_seed(0)
    nn.init.normal_(attention.qkv.weight)
    x = torch.randn(2, 4, 5)
    q, k, v = (x @ weight.T for weight in attention.qkv.weight.chunk(3))
    expected = v + attention.proj((q @ k.mT / 5**0.5).softmax(-1) @ v)
    torch.testing.assert_close(attention(x), expected)
    assert (expected - v - attention.proj((q @ k.mT / 3**0.5).softmax(-1) @ v)).abs().max() > 1e-3


def test_recorded_narrow_attention_has_the_published_scale() -> None:
    model = tiny()
    with vitlab.record(model, "attention", input_size=(64, 64)) as tape:
        model(images(64, 64))
    layer = model.patch_embed.layer2
    with torch.no_grad():
        first = model.patch_embed.split1(images(64, 64))
        tokens = model.patch_embed.layer1(first.flatten(2).mT).mT.unflatten(2, first.shape[2:])
        x = layer.norm1(model.patch_embed.split2(tokens).flatten(2).mT)
        q, k, _ = layer.attn.qkv(x).chunk(3, dim=-1)
    torch.testing.assert_close(tape["patch_embed.layer2"][:, 0], (q @ k.mT / x.shape[-1] ** 0.5).softmax(-1))


def test_position_table() -> None:
    table = sinusoid_table(5, 6)
    for position in range(5):
        for i in range(6):
            angle = position / 10000 ** (2 * (i // 2) / 6)
            assert table[position, i] == pytest.approx(math.cos(angle) if i % 2 else math.sin(angle), abs=1e-6)
    model = tiny()
    torch.testing.assert_close(model.pos_embed[0], sinusoid_table(17, 12))
    assert "pos_embed" in model.state_dict() and "pos_embed" not in dict(model.named_parameters())


def test_settings() -> None:
    model = tiny(in_chans=1, drop_path_rate=0.3)
    assert model.blocks[1].drop_path2.drop_prob == pytest.approx(0.3)
    model.reset_classifier(3)
    assert model(torch.randn(2, 1, 64, 64)).shape == (2, 3)
