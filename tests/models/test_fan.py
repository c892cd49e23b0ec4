"""FAN: the papers' parameter counts, and channel attention against loops."""

from __future__ import annotations

import math

import pytest
import timm
import torch
from timm.models._features import FeatureGetterNet
from torch import Tensor, nn

import vitlab
from cases import redraw
from cases.model_promises import compiles_and_exports, images, multiply_accumulates, parameters, round_trips, trains
from vitlab.core.recipe import Optimizer
from vitlab.models import fan
from vitlab.training.optimizer import make_optimizer

TINY = {"embed_dim": 16, "depth": 2, "num_heads": 2, "mlp_ratio": 2, "num_classes": 7}
KINDS = {
    "vit": {},
    "hybrid": {"stem_depths": (1, 2), "stem_dims": (8, 12)},
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def tiny(kind: str, seed: int = 0, **settings: object) -> nn.Module:
    torch.manual_seed(seed)
    return timm.create_model(f"fan_tiny_{kind}", **{**TINY, **KINDS[kind], **settings})


def on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return timm.create_model(name)


@pytest.mark.parametrize("name", fan.PAPER)
def test_parameters_of_the_papers(name: str) -> None:
    count, paper = parameters(on_meta(name)), fan.PAPER[name]
    assert count == paper["exact_params"]
    assert count / 1e6 == pytest.approx(paper["params_m"], rel=0.013)  # the docstring names those beyond 1 %


@pytest.mark.parametrize(
    ("branches", "count", "giga"), [(1, 50_475_048, 11.7), (4, 50_735_528, 11.8), (5, 50_801_368, None)]
)
def test_fan_base_hybrid_with_token_aware_pooling(branches: int, count: int, giga: float | None) -> None:
    model = vitlab.retrofit(on_meta("fan_base_hybrid"), f"TokenAwarePooling(branches={branches})")
    assert parameters(model) == count
    if giga is not None:
        assert multiply_accumulates(model) == pytest.approx(giga, rel=0.02)


def softmax_of_list(values: list[float]) -> list[float]:
    powers = [math.exp(value) for value in values]
    return [power / sum(powers) for power in powers]


def gate_by_loops(q: Tensor, k: Tensor, temperature: Tensor) -> Tensor:
    batch, tokens, heads, width = q.shape
    gate = torch.zeros(batch, 1, heads * width)
    for b in range(batch):
        for head in range(heads):
            keys = [softmax_of_list(k[b, :, head, c].tolist()) for c in range(width)]
            important = [sum(keys[c][n] for c in range(width)) / width for n in range(tokens)]
            for c in range(width):
                queries = softmax_of_list(q[b, :, head, c].tolist())
                product = sum(queries[n] * important[n] for n in range(tokens))
                gate[b, 0, head * width + c] = temperature[head, 0, 0] / (1 + math.exp(-product))
    return gate


def test_channel_gate_against_loops() -> None:
    torch.manual_seed(0)
    q, k, temperature = 3 * torch.randn(2, 6, 2, 3), 3 * torch.randn(2, 6, 2, 3), torch.rand(2, 1, 1)
    torch.testing.assert_close(fan.channel_gate(q, k, temperature), gate_by_loops(q, k, temperature))


def test_channel_processing_is_the_gate_times_the_normed_mlp() -> None:
    torch.manual_seed(0)
    processing = fan.ChannelProcessing(6, 2).eval()
    nn.init.normal_(processing.temperature)
    x = torch.randn(2, 6, 6)
    gate = gate_by_loops(processing.q(x).reshape(2, 6, 2, 3), x.reshape(2, 6, 2, 3), processing.temperature)
    values = processing.mlp(x, 2, 3)
    normed = (values - values.mean(-1, keepdim=True)) / (values.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(processing(x, 2, 3), gate * normed)


def test_mlp_without_convolutions_is_linear() -> None:
    """The only activation is between the two depthwise convolutions, on a branch that γ = 0 disables."""
    torch.manual_seed(0)
    mlp = fan.ConvolutionalMlp(4, 8).eval()
    nn.init.zeros_(mlp.gamma)
    x = torch.randn(2, 6, 4)
    torch.testing.assert_close(mlp(x, 2, 3), mlp.fc2(mlp.fc1(x)))
    nn.init.ones_(mlp.gamma)
    u, inner = mlp.fc1(x), mlp.depthwise
    convolved = inner.conv2(inner.bn(nn.functional.gelu(inner.conv1(u.transpose(1, 2).reshape(2, 8, 2, 3)))))
    torch.testing.assert_close(mlp(x, 2, 3), mlp.fc2(u + convolved.flatten(2).transpose(1, 2)))


def test_class_attention_norms_the_patch_tokens_and_adds_them_to_themselves() -> None:
    block = tiny("vit").cls_attn_blocks[0].eval()
    x = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(0))
    once = block.norm2(x[:, 1:] + block.gamma1 * block.norm1(x[:, 1:]))
    torch.testing.assert_close(block(x)[:, 1:], 2 * once)


def test_drop_path_is_constant_and_the_stem_has_none() -> None:
    model = tiny("hybrid", drop_path_rate=0.3)
    rates = [module.drop_prob for module in model.modules() if type(module).__name__ == "DropPath"]
    assert rates == [0.3] * 4


def test_temperatures_decay_and_the_class_token_does_not() -> None:
    model = tiny("vit")
    optimizer = make_optimizer(model, Optimizer(weight_decay=0.05), torch.device("cpu"))
    decay = {id(weight): group["weight_decay"] for group in optimizer.param_groups for weight in group["params"]}
    assert decay[id(model.cls_token)] == 0
    assert {decay[id(block.mlp.temperature)] for block in model.blocks} == {0.05}


def test_only_the_large_hybrid_starts_with_small_logits() -> None:
    deviations = {}
    for name in ("fan_large_vit", "fan_large_hybrid", "fan_base_hybrid"):
        torch.manual_seed(0)
        deviations[name] = timm.create_model(name, depth=1).head.weight.std().item()
    assert deviations["fan_large_hybrid"] == pytest.approx(0.001 * deviations["fan_large_vit"], rel=0.02)
    assert deviations["fan_large_vit"] == pytest.approx(deviations["fan_base_hybrid"], rel=0.02)


def layer_norm_of_maps(norm: nn.Module, x: Tensor, correction: int) -> Tensor:
    """Over the channels of (B, C, h, w), with the variance divided by C − correction."""
    centred = x - x.mean(1, keepdim=True)
    variance = centred.square().sum(1, keepdim=True) / (x.shape[1] - correction)
    return centred / (variance + 1e-6).sqrt() * norm.weight[:, None, None] + norm.bias[:, None, None]


def stem_by_hand(stem: nn.Module, x: Tensor, correction: int) -> list[Tensor]:
    """The two ConvNeXt stages: the first norm divides by C, all later ones by C − correction."""
    x, maps = layer_norm_of_maps(stem.stem[1], stem.stem[0](x), 0), []
    for stage in stem.stages:
        if not isinstance(stage.downsample, nn.Identity):
            x = stage.downsample[1](layer_norm_of_maps(stage.downsample[0], x, correction))
        for block in stage.blocks:
            y = layer_norm_of_maps(block.norm, block.conv_dw(x), correction).movedim(1, -1)
            y = block.mlp.fc2(nn.functional.gelu(block.mlp.fc1(y))).movedim(-1, 1)
            x = x + block.gamma[:, None, None] * y
        maps.append(x)
    return maps


@pytest.mark.parametrize(("settings", "correction"), [({}, 1), ({"stem_unbiased": False}, 0)])
def test_the_norms_after_the_stem_use_the_unbiased_variance(settings: dict, correction: int) -> None:
    stem = redraw(tiny("hybrid", **settings)).patch_embed
    for block in (*stem.stages[0].blocks, *stem.stages[1].blocks):
        nn.init.ones_(block.gamma)  # so that the branches count
    expected = stem_by_hand(stem, images(64, 48), correction)
    other = stem_by_hand(stem, images(64, 48), 1 - correction)
    for found, right, wrong in zip(stem.forward_stages(images(64, 48)), expected, other, strict=True):
        torch.testing.assert_close(found, right)
        assert (found - wrong).abs().max() > 1e-3


def test_both_kinds_of_norm_have_the_same_weights() -> None:
    published, standard = tiny("hybrid"), tiny("hybrid", stem_unbiased=False)
    assert list(published.state_dict()) == list(standard.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(published.parameters(), standard.parameters(), strict=True))


@each_kind
def test_sizes_classes_and_channels(kind: str) -> None:
    model = tiny(kind, in_chans=1, img_size=(64, 48)).eval()
    for size in ((64, 48), (32, 32), (50, 101)):
        assert model(torch.zeros(2, 1, *size)).shape == (2, 7)
    model.reset_classifier(3)
    assert model(torch.zeros(2, 1, 64, 48)).shape == (2, 3)
    model.reset_classifier(0)
    assert model(torch.zeros(2, 1, 64, 48)).shape == (2, 16)


@each_kind
def test_backward(kind: str) -> None:
    trains(tiny(kind), images(64, 48))


@each_kind
def test_compile_and_export(kind: str) -> None:
    compiles_and_exports(tiny(kind), images(64, 48))


@each_kind
def test_state_round_trip(kind: str) -> None:
    round_trips(tiny(kind), tiny(kind, seed=1), images(64, 48))


def test_feature_maps_of_the_hybrid_begin_in_the_stem() -> None:
    model = tiny("hybrid", features_only=True).eval()
    assert model.feature_info.channels() == [8, 12, 16, 16] and model.feature_info.reduction() == [4, 8, 16, 16]
    assert [tuple(m.shape[1:]) for m in model(images(64, 48))] == [(8, 16, 12), (12, 8, 6), (16, 4, 3), (16, 4, 3)]


def test_the_maps_of_the_published_segmenter() -> None:
    """TAPADL: both stages of the stem, the last block (15), and the patch tokens after both class-attention blocks."""
    with torch.device("meta"):
        model = timm.create_model("fan_base_hybrid", features_only=True)
    assert model.feature_info.channels() == [128, 256, 448, 448]
    assert model.feature_info.module_name() == [
        *("patch_embed.stages.0", "patch_embed.stages.1", "blocks.15", "cls_attn_blocks.1")
    ]


@each_kind
def test_the_last_maps_by_hand(kind: str) -> None:
    x, model = images(64, 48), redraw(tiny(kind)).eval()
    seen = {}
    for name in ("blocks.1", "cls_attn_blocks.1"):
        model.get_submodule(name).register_forward_hook(lambda _m, _i, output, name=name: seen.update({name: output}))
    model(x)
    tokens = [seen["blocks.1"], seen["cls_attn_blocks.1"][:, 1:]]
    features = redraw(tiny(kind)).eval()
    wrapped = FeatureGetterNet(features, out_indices=(-2, -1))
    for found, right in zip(wrapped(x), tokens, strict=True):
        torch.testing.assert_close(found, right.mT.unflatten(2, (4, 3)))
    final, maps = redraw(tiny(kind)).eval().forward_intermediates(x, indices=1, norm=True)
    torch.testing.assert_close(maps[0], final[:, 1:].mT.unflatten(2, (4, 3)))


@each_kind
def test_maps_before_class_attention_exclude_it(kind: str) -> None:
    model = tiny(kind)
    model.prune_intermediate_layers([0])
    assert len(model.cls_attn_blocks) == 0
    model = tiny(kind)
    model.prune_intermediate_layers([-1])
    assert len(model.cls_attn_blocks) == 2 and len(model.blocks) == 2


def test_patch_tokens_after_class_attention_can_be_recorded() -> None:
    model, x = redraw(tiny("hybrid")).eval(), images(64, 48)
    with vitlab.record(model, "features", input_size=(64, 48)) as tape:
        model(x)
    (after,) = model.forward_intermediates(x, indices=[-1], intermediates_only=True)
    torch.testing.assert_close(tape["cls_attn_blocks.1", "block.out"][:, 1:], after.flatten(2).mT)


@each_kind
def test_intermediates_end_in_the_features(kind: str) -> None:
    model = tiny(kind).eval()
    x = images(64, 48)
    final, maps = model.forward_intermediates(x)
    assert torch.equal(final, model.forward_features(x)) and len(maps) == len(model.feature_info)
    (last,) = tiny(kind, features_only=True, out_indices=(-1,)).eval()(x)
    assert torch.equal(last, maps[-1])
