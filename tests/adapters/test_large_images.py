"""Descriptions from a copy without values are those of a real forward, for every family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

import vitlab
from cases import VIT, Case
from cases.everything import CASES
from vitlab import adapters
from vitlab.adapters import large_images

#: Their adapters give inputs with values: tokens of a text, and the grid of the patches.
NEED_VALUES = {"hf_vilt", "hf_siglip2"}


@pytest.fixture
def from_copies(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All images count as large; the anatomies from copies, None where a real forward was needed."""
    found: list[Any] = []
    usual: Callable[..., Any] = large_images.without_values

    def observed(*given: Any) -> Any:
        found.append(usual(*given))
        return found[-1]

    monkeypatch.setattr(adapters, "without_values", observed)
    monkeypatch.setattr(large_images, "PIXELS", 1)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
def test_the_same_description_as_by_a_real_forward(case: Case, from_copies: list[Any]) -> None:
    model = case.model().train()
    large_images.PIXELS = 1 << 60
    real = vitlab.describe(model, case.size)
    large_images.PIXELS = 1
    held = {name: id(tensor) for name, tensor in model.state_dict(keep_vars=True).items()}
    values = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    assert vitlab.describe(model, case.size) == real
    assert (from_copies[-1] is None) == (case.family in NEED_VALUES)
    assert held == {name: id(tensor) for name, tensor in model.state_dict(keep_vars=True).items()}
    assert all(torch.equal(tensor, values[name]) for name, tensor in model.state_dict().items())
    assert model.training and torch.equal(torch.get_rng_state(), random)
    assert case.logits(model.eval()).isfinite().all()  # nothing without values is left in the model or in a cache
    assert vitlab.describe(model, case.size) == real


def test_a_model_with_parts_and_another_size(from_copies: list[Any]) -> None:
    model = timm.create_model("vit_tiny_patch16_224", num_classes=7, **{**VIT, "dynamic_img_size": True})
    vitlab.retrofit(model, "TokenAwarePooling", input_size=(32, 48))
    assert vitlab.describe(model, (32, 48)).blocks[0].mixer.queries.grid == (4, 6)
    assert None not in from_copies


class OwnClass(timm.models.vision_transformer.VisionTransformer):
    """A class that no test of ours knows."""


class ReadsAValue(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.detach().sum()) == float(x.detach().sum()) else x[:, 1:]


class OtherTensor(nn.Parameter):
    """Such as the parameters of a sharded model."""


def test_where_a_real_forward_is_needed(from_copies: list[Any]) -> None:
    usual = {"num_classes": 7, **VIT}
    reads, other = (timm.create_model("vit_tiny_patch16_224", **usual) for _ in range(2))
    reads.blocks[1].mlp.act = nn.Sequential(reads.blocks[1].mlp.act, ReadsAValue())
    other.blocks[0].mlp.fc1.weight = OtherTensor(other.blocks[0].mlp.fc1.weight.detach())
    for model in (OwnClass(**{k: v for k, v in usual.items() if k != "dynamic_img_size"}), reads, other):
        assert len(vitlab.describe(model).blocks) == VIT["depth"]
    assert from_copies == [None, None, None]


def test_small_images_are_described_by_a_real_forward() -> None:
    seen: list[bool] = []
    model = timm.create_model("vit_tiny_patch16_224", num_classes=7, **VIT)
    model.blocks[0].register_forward_hook(lambda module, given, output: seen.append(output.is_meta))
    vitlab.describe(model)
    assert seen == [False]


def test_large_images_need_no_values() -> None:
    """A forward on two images of 2048 pixels would compute for minutes."""
    seen: list[tuple[bool, torch.Size]] = []
    model = timm.create_model("vit_tiny_patch16_224", img_size=2048, depth=2)
    model.blocks[0].register_forward_hook(lambda module, given, output: seen.append((output.is_meta, output.shape)))
    anatomy = vitlab.describe(model)
    assert seen == [(True, (2, 16385, 192))] and anatomy.blocks[1].mixer.queries.grid == (128, 128)
