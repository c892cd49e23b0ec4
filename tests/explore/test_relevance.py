"""Overlays of the page against a loop over timm's explicit maps."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from cases.exploring import model_input, one_model
from vitlab.core.errors import VitlabError
from vitlab.explore.conditions import Ablation, Condition, Place
from vitlab.explore.relevance import Method, relevance
from vitlab.explore.shown_model import ShownModel


@pytest.fixture(scope="module")
def shown() -> ShownModel:
    return one_model()


def explicit_maps(
    shown: ShownModel, x: torch.Tensor, blocks: Sequence[Any] = ()
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Maps (1, H, N, N) of timm's unfused attention with their graph, and the logits (1, K)."""
    maps: list[torch.Tensor] = []
    handles = []
    blocks = blocks or list(shown.model.blocks)
    for block in blocks:
        block.attn.fused_attn = False
        handles.append(block.attn.attn_drop.register_forward_hook(lambda module, inputs, output: maps.append(output)))
    logits = shown.model(x)
    for handle, block in zip(handles, blocks, strict=True):
        handle.remove()
        block.attn.fused_attn = True
    return maps, logits


def without_attention(block: Any) -> torch.nn.Module:
    """timm's block without its attention branch."""

    class Rest(torch.nn.Module):
        def forward(self, x: torch.Tensor, **masks: Any) -> torch.Tensor:
            return x + block.mlp(block.norm2(x))

    return Rest()


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


@pytest.mark.parametrize("at", ["attn", "block"])
def test_ablated_attention_moves_no_relevance(shown: ShownModel, at: Place) -> None:
    """The model without the second layer is built by hand: one whose block, or attention branch, is removed."""
    block = shown.model.blocks[1]
    other = torch.nn.Identity() if at == "block" else without_attention(block)
    kept = [shown.model.blocks[i] for i in (0, 2)]
    image, ablations = model_input(shown), (Ablation(1, at),)
    shown.model.blocks[1] = other
    maps, logits = explicit_maps(shown, image, kept)
    shown.model.blocks[1] = block
    gradients = torch.autograd.grad(logits[0].max(), maps)
    by_rollout, by_gradient, rows, weighted_rows = np.eye(17), np.eye(17), [], []
    for each, gradient in zip(maps, gradients, strict=True):
        by_rollout = (0.5 * np.eye(17) + 0.5 * each[0].detach().double().numpy().mean(0)) @ by_rollout
        weighted = (each[0] * gradient[0]).detach().double().numpy().clip(0).mean(0)
        by_gradient = by_gradient + weighted @ by_gradient
        rows.append(by_rollout[0])
        weighted_rows.append(by_gradient[0])
    compare(relevance(shown, Condition("0", ablations=ablations), "rollout"), [rows[0], rows[0], rows[1]])
    weighted_rows = [weighted_rows[0], weighted_rows[0], weighted_rows[1]]
    compare(relevance(shown, Condition("0", ablations=ablations), "gradient"), weighted_rows)


def test_rollout_leaves_out_ablated_heads(shown: ShownModel) -> None:
    whole = shares(relevance(shown, Condition("0"), "rollout"))[0]
    heads = explicit_maps(shown, model_input(shown))[0][0][0].detach().double().numpy()
    for gone in ((1,), (0, 2)):
        ablations = tuple(Ablation(0, "head", head) for head in gone)
        first, *_ = shares(relevance(shown, Condition("0", ablations=ablations), "rollout"))
        expected = 0.5 * np.delete(heads, gone, 0).mean(0)[0, 1:]
        np.testing.assert_allclose(first, expected, atol=expected.max() / 250)
        assert np.abs(first - whole).max() > expected.max() / 50


@pytest.mark.parametrize("method", ["rollout", "gradient"])
def test_without_any_attention_the_class_token_sees_itself(shown: ShownModel, method: Method) -> None:
    found = relevance(shown, Condition("0", ablations=tuple(Ablation(layer, "attn") for layer in range(3))), method)
    assert found["prefix"] == [1, 1, 1] and not shares(found).any()


def test_a_class_that_the_model_does_not_have(shown: ShownModel) -> None:
    with pytest.raises(VitlabError, match="no class 'unicorn' in the outputs of deit_tiny_patch16_224"):
        relevance(shown, Condition("0"), "gradient", "unicorn")


def test_models_without_square_maps_raise_with_the_reason() -> None:
    swin = one_model("timm/swin_tiny_patch4_window7_224(img_size=32, patch_size=4, window_size=4, depths=(1, 1), "
                     "embed_dim=16, num_heads=(2, 4), num_classes=25)")  # fmt: skip
    with pytest.raises(VitlabError, match="attention rollout multiplies the maps of all layers"):
        relevance(swin, Condition("0"), "rollout")
