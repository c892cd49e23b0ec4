"""The causal trace against hooks by hand on a plain ViT, and its contract on other families."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vitlab
from cases import VIT, redraw, timm_model
from cases.everything import CASES
from vitlab.core.errors import VitlabError
from vitlab.instruments import causal_trace

GREY = {"mean": (0.5,) * 3, "std": (0.25,) * 3}


def darker(pixels: Tensor) -> Tensor:
    return pixels / 4


def images(count: int = 3) -> Tensor:
    return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(1)) * 4 - 2


def plain_model() -> nn.Module:
    model = redraw(timm_model("vit_tiny_patch16_224", **VIT)()).eval()
    with torch.no_grad():
        model.head.weight.mul_(50)  # probabilities that differ between images
    return model


def probability(model: nn.Module, x: Tensor, chosen: Tensor) -> np.ndarray:
    with torch.no_grad():
        return model(x).softmax(1)[torch.arange(len(x)), chosen].double().numpy()


def by_hand(model: nn.Module, module: nn.Module, clean: Tensor, corrupted: Tensor, where: object, before: bool = False):
    """Probabilities on corrupted images whose activations `[where]` at a module are those of the clean ones."""
    chosen = model(clean).argmax(1)
    stored: list[Tensor] = []

    def read(module: nn.Module, *given: object) -> None:
        stored.append(given[-1][0] if before else given[-1])  # type: ignore[index]

    def write(module: nn.Module, *given: object) -> object:
        x = (given[-1][0] if before else given[-1]).clone()  # type: ignore[index,union-attr]
        x[where] = stored[0][where]
        return (x,) if before else x

    register = module.register_forward_pre_hook if before else module.register_forward_hook
    handle = register(read)
    with torch.no_grad():
        model(clean)
    handle.remove()
    handle = register(write)
    result = probability(model, corrupted, chosen)
    handle.remove()
    return result


def test_effects_equal_those_of_hooks_by_hand() -> None:
    model, clean = plain_model(), images()
    corrupted = ((clean * 0.25 + 0.5) / 4 - 0.5) / 0.25
    found = vitlab.measure("causal_trace", model, [clean], corruption=darker, cells=2, **GREY)
    chosen = model(clean).argmax(1)
    base = probability(model, corrupted, chosen)
    block = model.blocks[1]
    expected = {
        ("attention",): by_hand(model, block.attn, clean, corrupted, slice(None)),
        ("mlp",): by_hand(model, block.mlp, clean, corrupted, slice(None)),
        ("prefix", 0): by_hand(model, block, clean, corrupted, (slice(None), 0)),
        # the cell in row 0 and column 1 of the 4×4 grid, after the class token
        ("tokens", 0, 1): by_hand(model, block, clean, corrupted, (slice(None), [3, 4, 7, 8])),
        ("heads", 2): by_hand(model, block.attn.proj, clean, corrupted, (..., slice(16, 24)), before=True),
    }
    for (name, *place), values in expected.items():
        effect = values - base
        where = (1, *place)
        assert np.isclose(found.values[name][where], effect.mean(), atol=1e-6), name
        error = effect.std(ddof=1) / np.sqrt(3)
        assert np.isclose(found.values[f"{name}_error"][where], error, atol=1e-6), name
    total = probability(model, clean, chosen) - base
    assert np.isclose(found.values["total_effect"], total.mean(), atol=1e-6)
    assert abs(float(found.values["total_effect"])) > 1e-2  # otherwise nothing was tested


def test_one_cell_without_prefix_tokens_is_the_whole_stream() -> None:
    """A model without a class token: patching its only cell restores the clean prediction exactly."""
    settings = {**VIT, "class_token": False, "global_pool": "avg"}
    model = redraw(timm_model("vit_tiny_patch16_224", **settings)()).eval()
    found = vitlab.measure("causal_trace", model, [images()], corruption=darker, cells=1, **GREY)
    assert np.allclose(found.values["tokens"][:, 0, 0], found.values["total_effect"], atol=1e-9)
    assert "prefix" not in found.values


def test_the_declared_cost_is_the_number_of_forwards() -> None:
    """3 layers × (2² cells + 1 prefix token + 3 heads + 6), and what reads the structure: 2 blank images, 1 a layer."""
    model, counts = plain_model(), []
    model.patch_embed.register_forward_hook(lambda module, inputs, output: counts.append(len(output)))
    vitlab.measure("causal_trace", model, [images(3)], corruption=darker, cells=2, **GREY)
    assert sum(counts) == 3 * 3 * (2**2 + 1 + 3 + 6) + 2 + 3
    assert f"heads + 6) forwards: {12 * (7**2 + 1 + 3 + 6)} for DeiT-Ti" in causal_trace.CARD.cost


def test_without_a_corruption_there_is_no_effect() -> None:
    found = vitlab.measure("causal_trace", plain_model(), [images()], corruption=lambda pixels: pixels, cells=2, **GREY)
    for name in ("tokens", "heads", "attention", "mlp", "prefix", "total_effect"):
        assert np.abs(found.values[name]).max() < 1e-5


def test_images_are_limited_and_batches_do_not_matter() -> None:
    model, x = plain_model(), images(5)
    whole = vitlab.measure("causal_trace", model, [x], cells=1, images=4, **GREY)
    pieces = vitlab.measure("causal_trace", model, [x[:3], x[3:]], cells=1, images=4, **GREY)
    assert whole.provenance["images"] == pieces.provenance["images"] == 4
    assert np.allclose(whole.values["heads"], pieces.values["heads"], atol=1e-6)


def test_all_images_are_used_by_default(tmp_path: Path) -> None:
    """18 images: `--images` of the command line decides, and the effect is the mean over all of them."""
    model, clean = plain_model(), images(18)
    found = vitlab.measure("causal_trace", model, [clean], corruption=darker, cells=1, **GREY)
    chosen = model(clean).argmax(1)
    corrupted = ((clean * 0.25 + 0.5) / 4 - 0.5) / 0.25
    total = probability(model, clean, chosen) - probability(model, corrupted, chosen)
    assert found.provenance["images"] == 18
    assert np.isclose(found.values["total_effect"], total.mean(), atol=1e-6)
    small = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=3, num_classes=25)"
    (stored,) = vitlab.measure_models([small], ["causal_trace(cells=1)"], tmp_path, data="scenes(test=32)", images=18)
    assert stored.provenance["images"] == 18


@pytest.mark.parametrize("family", ["swin", "pvt_v2", "convnext", "cait", "hf_vit", "torchvision_vit"])
def test_other_families(family: str) -> None:
    case = next(case for case in CASES if case.family == family)
    x = torch.rand(2, 3, *case.size, generator=torch.Generator().manual_seed(0))
    found = vitlab.measure("causal_trace", case.model(), [x], cells=2, mean=(0.0,) * 3, std=(1.0,) * 3)
    assert np.isfinite(found.values["tokens"]).any() and np.nanmax(np.abs(found.values["tokens"])) > 0
    assert ("heads" in found.values) == (family not in ("convnext", "cait"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cells": 0}, "an integer from 1 to 64"),
        ({"images": 1}, "an integer from 2"),
        ({"sigma": -1.0}, "a number from 0"),
        ({"corruption": "fogg"}, "fog"),
    ],
)
def test_mistakes(settings: dict[str, object], message: str) -> None:
    with pytest.raises(VitlabError, match=message):
        vitlab.measure("causal_trace", plain_model(), [images()], **{**GREY, **settings})
