"""Attention rollout and gradient-weighted attention against loops over timm's explicit attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vitlab
from cases import VIT, redraw, timm_model
from cases.everything import CASES
from vitlab.core.errors import VitlabError
from vitlab.instruments.shared.token_relevance import output_tokens, square_blocks


def plain_model(**settings: object) -> nn.Module:
    model = redraw(timm_model("vit_tiny_patch16_224", **{**VIT, **settings})()).eval()
    with torch.no_grad():
        for block in model.blocks:
            block.attn.qkv.weight.mul_(8)  # maps that are not uniform
    return model


def images(count: int = 3) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def explicit_maps(model: nn.Module, x: Tensor) -> tuple[list[Tensor], Tensor]:
    """Maps (B, H, N, N) of timm's unfused attention, with their graph, and the logits."""
    maps: list[Tensor] = []
    handles = []
    for block in model.blocks:
        block.attn.fused_attn = False
        handles.append(block.attn.attn_drop.register_forward_hook(lambda module, inputs, output: maps.append(output)))
    logits = model(x)
    for handle, block in zip(handles, model.blocks, strict=True):
        handle.remove()
        block.attn.fused_attn = True
    return maps, logits


def shares(relevance: np.ndarray) -> np.ndarray:
    row = relevance[0]
    return row / row.sum()


@pytest.mark.parametrize(("fusion", "residual"), [("mean", 0.5), ("max", 0.3), ("min", 0.0)])
def test_rollout_equals_a_loop(fusion: str, residual: float) -> None:
    model, x = plain_model(), images()
    found = vitlab.measure("attention_rollout", model, [x], fusion=fusion, residual=residual)
    maps, _ = explicit_maps(model, x)
    entropies = np.zeros((3, 3))
    for image in range(3):
        product = np.eye(17)
        for layer, each in enumerate(maps):
            heads = each[image].detach().double().numpy()
            fused = getattr(np, fusion)(heads, axis=0)
            fused = fused / fused.sum(1, keepdims=True)
            product = (residual * np.eye(17) + (1 - residual) * fused) @ product
            row = shares(product)
            entropies[image, layer] = -(row * np.log(row)).sum()
        assert np.allclose(found.values["map"][image].ravel(), shares(product)[1:], atol=1e-6)
    assert np.allclose(found.values["entropy"], entropies.mean(0), atol=1e-5)
    assert np.allclose(found.values["entropy_error"], entropies.std(0, ddof=1) / np.sqrt(3), atol=1e-5)


def test_gradient_attention_equals_a_loop() -> None:
    model, x = plain_model(), images()
    found = vitlab.measure("gradient_attention", model, [x])
    maps, logits = explicit_maps(model, x)
    score = logits.max(1).values.sum()
    gradients = torch.autograd.grad(score, maps)
    for image in range(3):
        relevance = np.eye(17)
        for each, gradient in zip(maps, gradients, strict=True):
            product = (each[image] * gradient[image]).detach().double().numpy()
            relevance = relevance + np.maximum(product, 0).mean(0) @ relevance
        assert np.allclose(found.values["map"][image].ravel(), shares(relevance)[1:], atol=1e-6)


def test_the_target_class_can_be_chosen() -> None:
    model, x = plain_model(), images(2)
    with torch.no_grad():
        predicted = model(x[:1]).argmax(1).item()
    own = vitlab.measure("gradient_attention", model, [x[:1]])
    same = vitlab.measure("gradient_attention", model, [x[:1]], target=predicted)
    other = vitlab.measure("gradient_attention", model, [x[:1]], target=(predicted + 1) % 7)
    assert np.array_equal(own.values["map"], same.values["map"])
    assert not np.allclose(own.values["map"], other.values["map"])


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({}, [0]),
        ({"class_token": False, "global_pool": "avg"}, list(range(16))),
        ({"class_token": False, "global_pool": "avg", "reg_tokens": 4}, list(range(4, 20))),
        ({"global_pool": "avg"}, list(range(1, 17))),
        ({"reg_tokens": 2}, [0]),
    ],
)
def test_the_rows_are_those_of_the_tokens_that_the_output_is_computed_from(
    settings: dict[str, object], rows: list[int]
) -> None:
    """Not the first token where it is a register token, or a class token that is not used."""
    model, x = plain_model(**settings), images(2)
    found = vitlab.measure("attention_rollout", model, [x])
    maps, _ = explicit_maps(model, x)
    product = np.eye(maps[0].shape[-1])
    for each in maps:
        product = (np.eye(len(product)) + each[0].detach().double().numpy().mean(0)) @ product / 2
    expected = product[rows].mean(0) / product[rows].mean(0).sum()
    assert np.allclose(found.values["map"][0].flatten(), expected[-16:], atol=1e-6)


def test_both_tokens_of_a_distilled_model_are_read() -> None:
    model, x = redraw(timm_model("deit_tiny_distilled_patch16_224", **VIT)()).eval(), images(1)
    anatomy = vitlab.describe(model, 32)
    blocks, layout = square_blocks(anatomy, "test")
    assert output_tokens(model, anatomy, blocks[-1], x, layout).nonzero()[:, 0].tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["attention_rollout", "gradient_attention"])
def test_the_model_is_left_as_it_was(kind: str) -> None:
    model, x = plain_model(), images(2)
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    vitlab.measure(kind, model, [x])
    assert model.training and all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("family", ["deit", "hf_vit", "beit"])
def test_other_plain_transformers(family: str) -> None:
    case = next((case for case in CASES if case.family == family), None)
    if case is None:
        pytest.skip(f"no case of {family}")
    x = torch.randn(2, 3, *case.size, generator=torch.Generator().manual_seed(0))
    for kind in ("attention_rollout", "gradient_attention"):
        found = vitlab.measure(kind, case.model(), [x])
        assert np.isfinite(found.values["map"]).all() and (found.values["map"] >= 0).all()


@pytest.mark.parametrize("kind", ["attention_rollout", "gradient_attention"])
def test_windows_and_pyramids_raise_with_the_reason(kind: str) -> None:
    for family in ("swin", "pvt_v2"):
        case = next(case for case in CASES if case.family == family)
        with pytest.raises(VitlabError, match="plain vision transformer"):
            vitlab.measure(kind, case.model(), [torch.randn(1, 3, *case.size)])


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("attention_rollout", {"fusion": "median"}, "mean"),
        ("attention_rollout", {"residual": 2.0}, "0 to 1"),
        ("attention_rollout", {"stored": 0}, "an integer from 1 to 10,000"),
        ("gradient_attention", {"target": 7}, "0 to 6"),
        ("gradient_attention", {"images": 0}, "an integer from 1"),
    ],
)
def test_mistakes(kind: str, settings: dict[str, object], message: str) -> None:
    with pytest.raises(VitlabError, match=message):
        vitlab.measure(kind, plain_model(), [images(1)], **settings)
