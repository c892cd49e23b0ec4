"""AlterNet: counts, plans, and window attention against a loop over tokens."""

from __future__ import annotations

import math

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from cases import redraw
from vitlab.core.errors import VitlabError
from vitlab.models.alternet import (
    PAPER,
    AlterNet,
    AttentionBlock,
    PostActAttentionBlock,
    WindowAttention,
    block_plan,
)

TINY = {"depths": (2, 2), "plan": (1, 1), "heads": (2, 3), "head_dim": 4, "width": 16, "num_classes": 5}
EACH_BASE = pytest.mark.parametrize("base", ["preact", "resnet", "resnext"])


def tiny(name: str = "alternet50_cifar", **settings: object) -> AlterNet:
    return redraw(timm.create_model(name, **{**TINY, **settings})).eval()


def on_meta(name: str, **settings: object) -> nn.Module:
    with torch.device("meta"):
        return timm.create_model(name, **settings).eval()


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# -- counts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, paper in PAPER.items() if paper["exact_params"]])
def test_exact_parameters(name: str) -> None:
    assert count(on_meta(name)) == PAPER[name]["exact_params"]


@pytest.mark.parametrize(("head_dim", "expected"), [(64, 34_062_538), (32, 26_321_098)])
def test_exact_parameters_of_the_released_plan_on_cifar(head_dim: int, expected: int) -> None:
    assert count(on_meta("alternet50_cifar", plan=(0, 1, 3, 2), head_dim=head_dim)) == expected


@pytest.mark.parametrize("depth", [18, 34, 50, 101])
def test_an_msa_replaces_a_convolution_block_of_known_size(depth: int) -> None:
    """A closed form for the last block: 24 heads of 64 channels, window 7, against two or three convolutions."""
    baseline = on_meta(f"alternet{depth}", plan=(0, 0, 0, 0))
    model = on_meta(f"alternet{depth}", plan=(0, 0, 0, 1))
    c, big = (512, 512) if depth < 50 else (512, 2048)
    inner = 24 * 64
    attention = 2 * big + big * c + 2 * c + 3 * c * inner + inner * big + big + 13**2
    convolution = 2 * (2 * c + 9 * c * c) if depth < 50 else 2 * big + big * c + 2 * c + 9 * c * c + 2 * c + c * big
    assert count(model) - count(baseline) == attention - convolution


@pytest.mark.parametrize(
    ("base", "theirs"), [("preact", "resnetv2_50"), ("resnet", "resnet50"), ("resnext", "resnext50_32x4d")]
)
def test_without_msas_the_bases_are_timms_networks(base: str, theirs: str) -> None:
    ours = on_meta("alternet50", base=base, depths=(3, 4, 6, 3), plan=(0, 0, 0, 0))
    assert count(ours) == count(on_meta(theirs))


def test_multiply_accumulates_of_attention_are_counted() -> None:
    """Projections and, for every query, the keys of its window twice."""
    with torch.device("meta"):
        attention = WindowAttention(8, 32, num_heads=3, head_dim=4, window_size=4)
    with FlopCounterMode(display=False) as counter:
        attention(torch.zeros(1, 8, 16, 8, device="meta"))
    tokens, inner = 16 * 8, 12
    assert counter.get_total_flops() // 2 == tokens * (3 * 8 * inner + 2 * 16 * inner + inner * 32)


# -- plans ------------------------------------------------------------------------------------------------------------


def test_block_plan_of_figure_11() -> None:
    assert block_plan(on_meta("alternet50_cifar")) == (
        "stage 1: Conv Conv Conv\n"
        "stage 2: Conv/2 Conv Conv MSA\n"
        "stage 3: Conv/2 Conv Conv Conv Conv MSA\n"
        "stage 4: Conv/2 MSA Conv MSA"
    )


def test_the_released_plan_on_cifar_is_registered_too() -> None:
    model = on_meta("alternet50_cifar_released")
    assert block_plan(model) == block_plan(on_meta("alternet50"))
    assert count(model) == 34_062_538 and {
        m.window_size for m in model.modules() if isinstance(m, WindowAttention)
    } == {4}
    assert model(torch.zeros(1, 3, 32, 32, device="meta")).shape == (1, 100)


def test_block_plan_of_figure_d5() -> None:
    plan = block_plan(on_meta("alternet50"))
    assert plan == (
        "stage 1: Conv Conv Conv\n"
        "stage 2: Conv/2 Conv Conv MSA\n"
        "stage 3: Conv/2 MSA Conv MSA Conv MSA\n"
        "stage 4: Conv/2 MSA Conv MSA"
    )
    assert plan.count("MSA") == 6


def test_heads_and_windows_of_the_stages() -> None:
    for name, window in (("alternet50", 7), ("alternet50_cifar", 4)):
        model = on_meta(name, plan=(1, 2, 3, 2))
        found = {
            (stage, block.attn.num_heads, block.attn.window_size)
            for stage, blocks in enumerate(model.stages)
            for block in blocks
            if isinstance(block, AttentionBlock)
        }
        assert found == {(0, 3, window), (1, 6, window), (2, 12, window), (3, 24, window)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"plan": (2, 1)}, "expected at most every second block"),
        ({"plan": (1,)}, "numbers, one for each stage"),
        ({"base": "vgg"}, "there are: preact, resnet, resnext"),
        ({"base": "resnext", "bottleneck": False}, "bottlenecks only"),
    ],
)
def test_a_wrong_plan_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(VitlabError, match=message):
        tiny(**settings)


# -- window attention -------------------------------------------------------------------------------------------------


def attention_by_loops(attention: WindowAttention, x: Tensor) -> Tensor:
    """Every token looks at the real tokens of its window, one head and one token at a time."""
    size, d = attention.window_size, attention.head_dim
    _, _, h, w = x.shape
    q, k, v = attention.qkv(x.permute(0, 2, 3, 1)).unflatten(-1, (3, attention.num_heads, d)).permute(3, 0, 1, 2, 4, 5)
    mixed = torch.zeros_like(q)
    for y in range(h):
        for z in range(w):
            top, left = y // size * size, z // size * size
            keys = [(a, b) for a in range(top, min(top + size, h)) for b in range(left, min(left + size, w))]
            for head in range(attention.num_heads):
                scores = [
                    (q[:, y, z, head] * k[:, a, b, head]).sum(-1) / math.sqrt(d)
                    + attention.relative_position_bias[a - y + size - 1, b - z + size - 1]
                    for a, b in keys
                ]
                for (a, b), weight in zip(keys, torch.stack(scores).softmax(0), strict=True):
                    mixed[:, y, z, head] += weight[:, None] * v[:, a, b, head]
    return attention.proj(mixed.flatten(3)).permute(0, 3, 1, 2)


@pytest.mark.parametrize("grid", [(8, 4), (6, 5), (3, 2), (2, 7)], ids=["tiled", "padded", "one window", "both"])
def test_window_attention_equals_a_loop(grid: tuple[int, int]) -> None:
    torch.manual_seed(0)
    attention = WindowAttention(6, 8, num_heads=2, head_dim=4, window_size=4).double()
    nn.init.normal_(attention.relative_position_bias)
    x = torch.randn(2, 6, *grid, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(attention(x), attention_by_loops(attention, x))


def test_padding_has_finite_gradients_in_every_parameter() -> None:
    attention = WindowAttention(6, 8, num_heads=2, head_dim=4, window_size=4)
    attention(torch.randn(2, 6, 5, 6)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in attention.parameters())


@pytest.mark.parametrize("block", [AttentionBlock, PostActAttentionBlock])
def test_a_block_only_adds_to_its_input(block: type[AttentionBlock | PostActAttentionBlock]) -> None:
    module = block(16, 4, num_heads=2, head_dim=4, window_size=4).eval()
    nn.init.zeros_(module.attn.proj.weight)
    nn.init.zeros_(module.attn.proj.bias)
    x = torch.randn(1, 16, 4, 8)
    assert torch.equal(module(x), x)


# -- the whole network ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("base", "theirs"), [("resnet", "resnet50"), ("resnext", "resnext50_32x4d")])
def test_without_msas_the_logits_are_those_of_timms_network(base: str, theirs: str) -> None:
    reference = redraw(timm.create_model(theirs, layers=(1, 1, 1, 1), num_classes=5)).eval()
    model = timm.create_model("alternet50", base=base, depths=(1,) * 4, plan=(0,) * 4, num_classes=5).eval()
    # both define their layers in the order in which they run, but for the norms' places in the names
    values = list(reference.state_dict().values())
    model.load_state_dict(dict(zip(model.state_dict(), values, strict=True)))
    images = torch.randn(1, 3, 40, 56)
    torch.testing.assert_close(model(images), reference(images))


@EACH_BASE
@pytest.mark.parametrize("size", [(16, 16), (10, 22)])
def test_shapes_gradients_and_weights(base: str, size: tuple[int, int]) -> None:
    model = tiny(base=base, in_chans=4, img_size=size)
    images = torch.randn(2, 4, *size)
    assert model(images).shape == (2, 5)
    model(images).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    copy = timm.create_model("alternet50_cifar", **TINY, base=base, in_chans=4).eval()
    copy.load_state_dict(model.state_dict())
    assert torch.equal(copy(images), model(images))
    model.reset_classifier(3)
    assert model(images).shape == (2, 3)


@pytest.mark.parametrize(
    ("base", "size"), [("preact", (16, 16)), ("preact", (10, 22)), ("resnet", (10, 22)), ("resnext", (8, 16))]
)
def test_compile_and_export(base: str, size: tuple[int, int]) -> None:
    torch._dynamo.reset()  # else the sizes of other tests make this one's symbolic, and slow
    model, images = tiny(base=base), torch.randn(2, 3, *size)
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="eager")(images), model(images))
    torch.testing.assert_close(torch.export.export(model, (images,)).module()(images), model(images))


@EACH_BASE
def test_the_imagenet_stem_and_basic_blocks(base: str) -> None:
    model = tiny("alternet50" if base == "resnext" else "alternet18", base=base)
    assert model.stages[0][1].attn.window_size == 7
    assert model(torch.randn(1, 3, 44, 60)).shape == (1, 5)


def test_feature_maps() -> None:
    model = timm.create_model("alternet50", **TINY, base="resnet", features_only=True, out_indices=(0, 1, 2)).eval()
    assert [tuple(x.shape[1:]) for x in model(torch.randn(1, 3, 32, 48))] == [(16, 16, 24), (64, 8, 12), (128, 4, 6)]


def test_mixed_precision() -> None:
    model = tiny()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(torch.randn(1, 3, 10, 10))
    assert logits.isfinite().all()


def test_tables_of_relative_position_are_not_decayed() -> None:
    assert tiny().no_weight_decay() == {
        "stages.0.1.attn.relative_position_bias",
        "stages.1.1.attn.relative_position_bias",
    }
