"""Overlays of the page against a loop over timm's explicit maps."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
import torch

from cases.exploring import model_input, one_model
from vitlab.core.errors import VitlabError
from vitlab.explore.conditions import Ablation, Condition
from vitlab.explore.relevance import relevance
from vitlab.explore.shown_model import ShownModel


@pytest.fixture(scope="module")
def shown() -> ShownModel:
    return one_model()


def explicit_maps(shown: ShownModel, x: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Maps (1, H, N, N) of timm's unfused attention with their graph, and the logits (1, K)."""
    maps: list[torch.Tensor] = []
    handles = []
    for block in shown.model.blocks:
        block.attn.fused_attn = False
        handles.append(block.attn.attn_drop.register_forward_hook(lambda module, inputs, output: maps.append(output)))
    logits = shown.model(x)
    for handle, block in zip(handles, shown.model.blocks, strict=True):
        handle.remove()
        block.attn.fused_attn = True
    return maps, logits


def shares(found: dict[str, Any]) -> np.ndarray:
    values = np.frombuffer(base64.b64decode(found["maps"]), np.uint8).reshape(3, 16) / 255
    return values * np.array(found["peaks"])[:, None]


def compare(found: dict[str, Any], rows: list[np.ndarray]) -> None:
    expected = np.stack([row / row.sum() for row in rows])
    np.testing.assert_allclose(shares(found), expected[:, 1:], atol=expected[:, 1:].max() / 500)
    np.testing.assert_allclose(found["prefix"], expected[:, 0], atol=1e-5)
    assert tuple(found["grid"]) == (4, 4)


def test_rollout_equals_a_loop_after_every_layer(shown: ShownModel) -> None:
    maps, _ = explicit_maps(shown, model_input(shown))
    product, rows = np.eye(17), []
    for each in maps:
        product = (0.5 * np.eye(17) + 0.5 * each[0].detach().double().numpy().mean(0)) @ product
        rows.append(product[0])
    compare(relevance(shown, Condition("0"), "rollout"), rows)


@pytest.mark.parametrize("target", [None, 7])
def test_gradient_weighted_attention_equals_a_loop_after_every_layer(shown: ShownModel, target: int | None) -> None:
    maps, logits = explicit_maps(shown, model_input(shown))
    gradients = torch.autograd.grad(logits[0].max() if target is None else logits[0, target], maps)
    product, rows = np.eye(17), []
    for each, gradient in zip(maps, gradients, strict=True):
        weighted = (each[0] * gradient[0]).detach().double().numpy().clip(0).mean(0)
        product = product + weighted @ product
        rows.append(product[0])
    name = None if target is None else shown.classes[target]
    compare(relevance(shown, Condition("0"), "gradient", name), rows)


def test_an_ablated_head_has_no_gradient(shown: ShownModel) -> None:
    """Without the heads of the last two layers only the first layer moves relevance between tokens."""
    ablations = tuple(Ablation(layer, "head", head) for layer in (1, 2) for head in range(3))
    first, second, third = shares(relevance(shown, Condition("0", ablations=ablations), "gradient"))
    np.testing.assert_allclose(first, second, atol=1e-9)
    np.testing.assert_allclose(first, third, atol=1e-9)


def test_a_class_that_the_model_does_not_have(shown: ShownModel) -> None:
    with pytest.raises(VitlabError, match="no class 'unicorn' in the outputs of deit_tiny_patch16_224"):
        relevance(shown, Condition("0"), "gradient", "unicorn")


def test_models_without_square_maps_raise_with_the_reason() -> None:
    swin = one_model("timm/swin_tiny_patch4_window7_224(img_size=32, patch_size=4, window_size=4, depths=(1, 1), "
                     "embed_dim=16, num_heads=(2, 4), num_classes=25)")  # fmt: skip
    with pytest.raises(VitlabError, match="attention rollout multiplies the maps of all layers"):
        relevance(swin, Condition("0"), "rollout")
