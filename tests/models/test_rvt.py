"""RVT: the papers' parameter counts, and position-aware attention scaling against loops."""

from __future__ import annotations

import pytest
import timm
import torch
from timm.layers import Attention
from torch import Tensor, nn

import vitlab
from cases.model_promises import compiles_and_exports, images, multiply_accumulates, parameters, round_trips, trains
from vitlab.models import rvt

TINY = {"img_size": 64, "embed_dims": (12, 24), "depths": (2, 1), "num_heads": (2, 4), "mlp_ratio": 2, "num_classes": 7}
KINDS = {
    "conv": {},
    "masked": {"masked_blocks": 2},
    "masked beyond the first stage": {"masked_blocks": 3},
    "plain mlp": {"masked_blocks": 1, "conv_mlp": False},
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def tiny(kind: str, seed: int = 0, **settings: object) -> nn.Module:
    torch.manual_seed(seed)
    return timm.create_model("rvt_tiny", **{**TINY, **KINDS[kind], **settings})


def on_meta(name: str, **settings: object) -> nn.Module:
    with torch.device("meta"):
        return timm.create_model(name, **settings)


@pytest.mark.parametrize("name", rvt.PAPER)
def test_parameters_and_multiply_accumulates_of_the_papers(name: str) -> None:
    model, paper = on_meta(name), rvt.PAPER[name]
    assert parameters(model) == paper["exact_params"]
    if paper["params_m"] is not None:
        assert abs(parameters(model) / 1e6 - paper["params_m"]) < 0.06  # printed digits are rounded or cut
        assert multiply_accumulates(model) == pytest.approx(paper["macs_g"], rel=0.02)


@pytest.mark.parametrize(
    ("settings", "branches", "count"),
    [
        ({}, 4, 92_089_288),  # 92.1 M of TAPADL, Table 2
        ({"masked_blocks": 5}, 1, 88_528_744),  # the released RVT-B*
        ({"masked_blocks": 5, "conv_mlp": True}, 1, 89_063_272),  # TAPADL's code
        ({"masked_blocks": 5, "conv_mlp": True}, 4, 89_396_872),
        ({"masked_blocks": 0}, 1, 86_223_784),
    ],
)
def test_published_and_released_forms_of_rvt_base_plus(settings: dict, branches: int, count: int) -> None:
    model = on_meta("rvt_base_plus", **settings)
    vitlab.retrofit(model, f"TokenAwarePooling(branches={branches})")
    assert parameters(model) == count


def test_rvt_base_plus_is_registered_as_the_tables_count_it_and_as_it_was_released() -> None:
    masked = {
        name: sum(isinstance(module, rvt.PositionAwareAttention) for module in on_meta(name).modules())
        for name in ("rvt_base_plus", "rvt_base_plus_released")
    }
    assert masked == {"rvt_base_plus": 12, "rvt_base_plus_released": 5}
    assert parameters(on_meta("rvt_base_plus_released")) == 88_528_744


def scaled_attention_by_loops(attention: rvt.PositionAwareAttention, x: Tensor) -> Tensor:
    batch, tokens, dim = x.shape
    heads, width = attention.num_heads, dim // attention.num_heads
    q, k, v = attention.qkv(x).chunk(3, dim=-1)
    out = torch.zeros_like(x)
    for b in range(batch):
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            for i in range(tokens):
                logits = torch.stack([q[b, i, part] @ k[b, j, part] for j in range(tokens)]) / width**0.5
                weights = (logits * attention.position_importance[head, i].sigmoid()).exp()
                out[b, i, part] = (weights / weights.sum()) @ v[b, :, part]
    return attention.proj(out)


def test_position_aware_attention_against_loops() -> None:
    torch.manual_seed(0)
    attention = rvt.PositionAwareAttention(6, 2, (2, 3), qkv_bias=True)
    nn.init.normal_(attention.position_importance)
    x = torch.randn(2, 6, 6)
    torch.testing.assert_close(attention(x, (2, 3)), scaled_attention_by_loops(attention, x))


def test_position_aware_attention_with_weights_of_one_is_plain_attention() -> None:
    torch.manual_seed(0)
    scaled, plain = rvt.PositionAwareAttention(6, 2, (2, 3), qkv_bias=True), Attention(6, 2, qkv_bias=True)
    plain.load_state_dict({name: value for name, value in scaled.state_dict().items() if name != "position_importance"})
    nn.init.constant_(scaled.position_importance, 40.0)
    for grid in ((2, 3), (3, 4)):
        x = torch.randn(2, grid[0] * grid[1], 6)
        torch.testing.assert_close(scaled(x, grid), plain(x))


def linear_interpolation(old: int, new: int) -> Tensor:
    """(new, old): how much each new sample takes from each old one, centres of pixels aligned."""
    matrix = torch.zeros(new, old)
    for i in range(new):
        position = min(max((i + 0.5) * old / new - 0.5, 0.0), old - 1.0)
        low = min(int(position), old - 1)
        matrix[i, low] += 1 - (position - low)
        matrix[i, min(low + 1, old - 1)] += position - low
    return matrix


@pytest.mark.parametrize("new", [(2, 3), (3, 2), (5, 4), (1, 1)])
def test_resized_importance_is_interpolation_of_both_axes(new: tuple[int, int]) -> None:
    importance = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(0))
    both = torch.kron(linear_interpolation(2, new[0]), linear_interpolation(3, new[1]))
    torch.testing.assert_close(rvt.resize_position_importance(importance, (2, 3), new), both @ importance @ both.T)


def test_masks_of_a_checkpoint_of_another_size_are_resized() -> None:
    small, large = tiny("masked"), tiny("masked", img_size=(96, 64))
    state = rvt.checkpoint_filter_fn(small.state_dict(), large)
    large.load_state_dict(state)
    torch.testing.assert_close(small.eval()(images(96, 64)), large.eval()(images(96, 64)))
    with pytest.raises(vitlab.VitlabError, match="square"):
        rvt.checkpoint_filter_fn(large.state_dict(), tiny("masked", img_size=(96, 32)))


def test_convolutional_mlp_with_an_idle_convolution_is_a_plain_mlp() -> None:
    torch.manual_seed(0)
    mlp = rvt.ConvolutionalMlp(4, 8).eval()
    nn.init.zeros_(mlp.depthwise.bias)
    nn.init.dirac_(mlp.depthwise.weight, groups=8)
    for norm in (mlp.norm1, mlp.norm2, mlp.norm3):
        norm.eps = 0.0
    x = torch.randn(2, 6, 4)
    hidden = nn.functional.gelu(nn.functional.gelu(x @ mlp.fc1.weight[:, :, 0, 0].T + mlp.fc1.bias))
    torch.testing.assert_close(mlp(x, (2, 3)), hidden @ mlp.fc2.weight[:, :, 0, 0].T + mlp.fc2.bias)


def test_the_stem_gives_the_grid_that_is_computed_for_the_masks() -> None:
    with torch.device("meta"):
        stem = rvt.RobustPatchEmbed(3, 1)
        for pixels in (29, 32, 64, 97, 224, 250, 384):
            assert stem(torch.empty(1, 3, pixels, pixels)).shape[-1] == rvt.RobustPatchEmbed.side(pixels)


def test_drop_path_never_reaches_its_rate() -> None:
    model = tiny("conv", drop_path_rate=0.3)
    rates = [block.drop_path2.drop_prob for stage in model.stages for block in stage.blocks]
    assert rates == pytest.approx([0.0, 0.1, 0.2])


@each_kind
def test_sizes_classes_and_channels(kind: str) -> None:
    model = tiny(kind, in_chans=1, img_size=(64, 48)).eval()
    for size in ((64, 48), (64, 64), (50, 101)):
        assert model(torch.zeros(2, 1, *size)).shape == (2, 7)
    model.reset_classifier(3)
    assert model(torch.zeros(2, 1, 64, 48)).shape == (2, 3)
    model.reset_classifier(0)
    assert model(torch.zeros(2, 1, 64, 48)).shape == (2, 24)


@each_kind
def test_backward(kind: str) -> None:
    trains(tiny(kind, drop_path_rate=0.0), images(64, 48))


@each_kind
def test_compile_and_export(kind: str) -> None:
    compiles_and_exports(tiny(kind), images(64, 48))  # masks are interpolated
    if kind == "masked":
        compiles_and_exports(tiny(kind), images(64, 64))


@each_kind
def test_state_round_trip(kind: str) -> None:
    round_trips(tiny(kind), tiny(kind, seed=1), images(64, 64))


def test_feature_maps() -> None:
    model = tiny("masked", features_only=True, out_indices=(0, 2)).eval()
    maps = model(images(64, 96))
    assert [tuple(m.shape) for m in maps] == [(2, 12, 4, 6), (2, 24, 2, 3)]
    assert model.feature_info.channels() == [12, 24] and model.feature_info.reduction() == [16, 32]
    plain = tiny("masked").eval()
    final, every = plain.forward_intermediates(images(64, 96))
    assert torch.equal(final, plain.forward_features(images(64, 96))) and torch.equal(every[-1], final)
    tokens = plain.forward_intermediates(
        images(64, 96), [1], output_fmt="NLC", intermediates_only=True, stop_early=True
    )
    assert torch.equal(tokens[0], every[1].flatten(2).transpose(1, 2))


def test_checkpointed_gradients_are_the_same() -> None:
    gradients = []
    for enable in (False, True):
        model = tiny("masked").eval()  # BatchNorm must not see a batch twice
        model.set_grad_checkpointing(enable)
        model(images(64, 64)).sum().backward()
        gradients.append(model.patch_embed.conv.weight.grad)
    torch.testing.assert_close(*gradients)


def test_mistakes_are_named() -> None:
    with pytest.raises(vitlab.VitlabError, match="expected 0 to 3, the number of blocks"):
        tiny("conv", masked_blocks=4)
    with pytest.raises(vitlab.VitlabError, match="global_pool='max'"):
        tiny("conv").reset_classifier(3, "max")
