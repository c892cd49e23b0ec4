"""Pre-activation ResNet: counts, timm's network as an oracle, and the common interface of models."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from cases import redraw
from vitlab.models._staged_network import StagedNetwork
from vitlab.models.preact_resnet import PAPER

TINY = {"depths": (1, 2), "width": 8, "num_classes": 5}


def tiny(name: str, **settings: object) -> StagedNetwork:
    return redraw(timm.create_model(name, **{**TINY, **settings})).eval()


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def on_meta(name: str, **settings: object) -> nn.Module:
    with torch.device("meta"):
        return timm.create_model(name, **settings).eval()


def multiply_accumulates(model: nn.Module, size: tuple[int, ...]) -> int:
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, *size, device="meta"))
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("name", [name for name, paper in PAPER.items() if paper["exact_params"]])
def test_exact_parameters(name: str) -> None:
    assert count(on_meta(name)) == PAPER[name]["exact_params"]


@pytest.mark.parametrize("depth", [18, 34, 50, 101])
def test_imagenet_networks_cost_what_timms_do(depth: int) -> None:
    ours, theirs = on_meta(f"preact_resnet{depth}"), on_meta(f"resnetv2_{depth}")
    assert count(ours) == count(theirs)
    assert multiply_accumulates(ours, (3, 224, 224)) == multiply_accumulates(theirs, (3, 224, 224))


@pytest.mark.parametrize("depth", [18, 34, 50, 101])
def test_the_two_stems_differ_by_their_kernels_and_classes(depth: int) -> None:
    large, small = on_meta(f"preact_resnet{depth}"), on_meta(f"preact_resnet{depth}_cifar")
    assert count(large) - count(small) == 64 * 3 * (49 - 9) + 900 * (large.num_features + 1)


@pytest.mark.parametrize("basic", [False, True])
def test_logits_are_those_of_timms_network(basic: bool) -> None:
    from timm.layers import BatchNormAct2d, create_conv2d
    from timm.models.resnetv2 import ResNetV2

    theirs = redraw(
        ResNetV2(
            layers=[1, 2],
            channels=(16, 32) if basic else (64, 128),
            stem_chs=16,
            basic=basic,
            bottle_ratio=1.0 if basic else 0.25,
            conv_layer=create_conv2d,
            norm_layer=BatchNormAct2d,
            num_classes=5,
        )
    ).eval()
    ours = tiny("preact_resnet50", bottleneck=not basic, width=16)
    weights = {name.replace(".blocks.", "."): value for name, value in theirs.state_dict().items()}
    weights["head.fc.weight"] = weights["head.fc.weight"].flatten(1)
    ours.load_state_dict(weights)
    images = torch.randn(2, 3, 40, 56)
    torch.testing.assert_close(ours(images), theirs(images))


@pytest.mark.parametrize("name", ["preact_resnet18_cifar", "preact_resnet50"])
def test_shapes_gradients_and_weights(name: str) -> None:
    model = tiny(name, in_chans=4)
    images = torch.randn(2, 4, 24, 40)
    assert model(images).shape == (2, 5)
    assert model.forward_head(model.forward_features(images), pre_logits=True).shape == (2, model.num_features)
    model(images).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    copy = timm.create_model(name, **TINY, in_chans=4).eval()
    copy.load_state_dict(model.state_dict())
    assert torch.equal(copy(images), model(images))
    model.reset_classifier(3)
    assert model(images).shape == (2, 3)
    model.reset_classifier(0)
    assert model(images).shape == (2, model.num_features)


@pytest.mark.parametrize("name", ["preact_resnet18_cifar", "preact_resnet50"])
def test_compile_and_export(name: str) -> None:
    torch._dynamo.reset()  # else the sizes of other tests make this one's symbolic, and slow
    model, images = tiny(name), torch.randn(2, 3, 16, 24)
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="eager")(images), model(images))
    torch.testing.assert_close(torch.export.export(model, (images,)).module()(images), model(images))


@pytest.mark.parametrize(("name", "reductions"), [("preact_resnet18_cifar", [1, 1, 2]), ("preact_resnet50", [2, 4, 8])])
def test_feature_maps(name: str, reductions: list[int]) -> None:
    model = timm.create_model(name, **TINY, features_only=True, out_indices=(0, 1, 2)).eval()
    maps = model(torch.randn(1, 3, 32, 48))
    assert model.feature_info.reduction() == reductions
    assert [tuple(x.shape[1:]) for x in maps] == [
        (channels, 32 // by, 48 // by) for channels, by in zip(model.feature_info.channels(), reductions, strict=True)
    ]


def test_stochastic_depth_rises_linearly_from_zero() -> None:
    model = timm.create_model("preact_resnet50_cifar", **TINY, drop_path_rate=0.2)
    rates = [getattr(block.drop_path, "drop_prob", 0.0) for stage in model.stages for block in stage]
    assert rates == pytest.approx([0.0, 0.1, 0.2])
