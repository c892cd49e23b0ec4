"""Views of the page against the model: rows by hand from timm's weights, predictions, corruption, occlusion."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import functional as F

from cases.exploring import one_model
from vitlab.corruptions.apply import corrupt
from vitlab.explore import views
from vitlab.explore.app import open_explorer
from vitlab.explore.conditions import Ablation, Condition, Query
from vitlab.explore.shown_model import ShownModel


@pytest.fixture
def shown() -> ShownModel:
    return one_model()


def pixels(shown: ShownModel, name: str = "0") -> Tensor:
    return F.to_tensor(shown.images.picture(name))


def fed(shown: ShownModel, pixels: Tensor) -> Tensor:
    return F.normalize(pixels, shown.preprocessing.mean, shown.preprocessing.std)[None]


def by_hand(model: torch.nn.Module, image: Tensor, layer: int) -> Tensor:
    """(H, N, N) of a timm ViT, from its weights alone."""
    x = model.norm_pre(model._pos_embed(model.patch_embed(image)))
    for block in model.blocks[:layer]:
        x = block(x)
    attention = model.blocks[layer].attn
    normed = model.blocks[layer].norm1(x)
    q, k, _ = (
        (normed @ attention.qkv.weight.T + attention.qkv.bias).unflatten(-1, (3, attention.num_heads, -1))[0].unbind(1)
    )
    logits = torch.einsum("ihd,jhd->hij", q, k) * attention.head_dim**-0.5
    return logits.softmax(-1)


@torch.no_grad()
@pytest.mark.parametrize("query", [Query(0.1, 0.9), Query(prefix=0), Query(1.0, 1.0)])
def test_rows_are_the_softmax_of_the_models_own_queries_and_keys(shown: ShownModel, query: Query) -> None:
    token = 0 if query.prefix == 0 else 1 + 4 * min(3, int(query.y * 4)) + min(3, int(query.x * 4))
    found_rows = views.rows(shown, Condition("0"), query)
    for layer, row in enumerate(found_rows):
        expected = by_hand(shown.model, fed(shown, pixels(shown)), layer)[:, token]
        values = np.frombuffer(base64.b64decode(row["maps"]), np.uint8).reshape(3, 16) / 255
        found = values * np.array(row["peaks"])[:, None]
        np.testing.assert_allclose(found, expected[:, 1:], atol=float(expected.max()) / 500)
        np.testing.assert_allclose(row["prefix"], expected[:, :1], atol=1e-5)
        np.testing.assert_allclose(row["entropy"], torch.special.entr(expected).sum(-1), atol=1e-4)


@torch.no_grad()
def test_predictions_and_lens(shown: ShownModel) -> None:
    view = views.view(shown, Condition("2"))
    probability = shown.model(fed(shown, pixels(shown, "2")))[0].softmax(-1)
    assert [entry["name"] for entry in view["predictions"]] == [
        shown.classes[i] for i in probability.argsort(descending=True)[:5]
    ]
    np.testing.assert_allclose(view["predictions"][0]["probability"], probability.max(), atol=1e-5)
    assert view["layers"][-1]["lens"][0]["name"] == view["predictions"][0]["name"]
    np.testing.assert_allclose(view["layers"][-1]["lens"][0]["probability"], probability.max(), atol=1e-5)
    assert view["label"] == shown.images.name_of(shown.images.images[2][1])


def picture(view: dict) -> Tensor:
    data = base64.b64decode(view["picture"].partition(",")[2])
    return F.to_tensor(Image.open(io.BytesIO(data)))


@torch.no_grad()
def test_corruption_then_occlusion_in_the_mean_colour(shown: ShownModel) -> None:
    condition = Condition("1", "fog", 4, (0, 5))
    view = views.view(shown, condition)
    foggy = corrupt(pixels(shown, "1")[None], "fog", 4, indices=[1])[0]
    expected = foggy.clone()
    for row, column in ((0, 0), (1, 1)):  # cells 0 and 5 of 4 × 4, 8 pixels a side
        cell = expected[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
        cell.copy_(torch.tensor(shown.preprocessing.mean).view(3, 1, 1).expand_as(cell))
    np.testing.assert_allclose(picture(view), expected, atol=1.01 / 255)
    probability = shown.model(fed(shown, expected))[0].softmax(-1)
    np.testing.assert_allclose(view["predictions"][0]["probability"], probability.max(), atol=1e-5)


def test_one_forward_for_each_change_and_none_for_a_click(shown: ShownModel) -> None:
    count = []
    shown.model.register_forward_hook(lambda *_: count.append(1))
    views.view(shown, Condition("0"))
    for column in range(4):
        views.rows(shown, Condition("0"), Query(0.5, column / 4))
    assert len(count) == 1
    views.view(shown, Condition("0", hidden=(3,)))
    assert len(count) == 2


@pytest.mark.parametrize(
    ("model", "maps"),
    [
        ("timm/resnet10t", 0),
        ("timm/swin_tiny_patch4_window7_224(img_size=(32, 64), patch_size=4, window_size=4, depths=(2, 2), "
         "embed_dim=16, num_heads=(2, 4))", 4),
        ("vitlab/pvt_tiny(img_size=32, embed_dims=(8, 16), mlp_ratios=(2, 2), sr_ratios=(2, 1), depths=(1, 2), "
         "num_heads=(1, 2))", 3),
        ("vitlab/mixer_tiny_cifar(patch_size=8, num_blocks=2)", 0),
    ],
)  # fmt: skip
def test_windows_pyramids_and_models_without_maps(model: str, maps: int) -> None:
    shown = open_explorer([model], "scenes(train=1, test=2)", None, 2, "cpu").models[0]
    view = views.view(shown, Condition("0"))
    rows = views.rows(shown, Condition("0"), Query())
    assert sum("maps" in row for row in rows) == maps
    for layer, row in zip(view["layers"], rows, strict=True):
        assert ("maps" in row) == ("grid" in layer) and bool(layer["why"]) == ("maps" not in row)
        if "maps" in row:
            assert len(base64.b64decode(row["maps"])) == layer["heads"] * layer["grid"][0] * layer["grid"][1]
    assert view["layers"][-1]["lens"] is not None and len(view["predictions"]) == 5


@torch.no_grad()
def test_predictions_are_compared_with_those_before_the_change(shown: ShownModel) -> None:
    clean = shown.model(fed(shown, pixels(shown)))[0].softmax(-1)
    foggy_pixels = corrupt(pixels(shown)[None], "fog", 5, indices=[0])[0]
    foggy = shown.model(fed(shown, foggy_pixels))[0].softmax(-1)
    assert views.predictions(shown, Condition("0"))["reference"] == ""
    found = views.predictions(shown, Condition("0", "fog", 5))
    assert found["reference"] == "the clean image"
    for row in found["predictions"]:
        assert row["name"] == shown.classes[row["index"]]
        assert abs(row["probability"] - foggy[row["index"]]) < 1e-5 and abs(row["before"] - clean[row["index"]]) < 1e-5
    indices = [row["index"] for row in found["predictions"]]
    assert {*foggy.topk(5).indices.tolist(), *clean.topk(3).indices.tolist()} <= set(indices)
    assert shown.label_output("0") in indices and len(set(indices)) == len(indices)
    assert indices == sorted(indices, key=lambda index: -foggy[index])
    both = views.predictions(shown, Condition("0", "fog", 5, (), (Ablation(0, "mlp"),)))
    assert both["reference"] == "the model without ablations"
    assert all(abs(row["before"] - foggy[row["index"]]) < 1e-5 for row in both["predictions"])


def test_the_label_is_an_output_of_the_model_also_if_the_model_orders_its_classes_otherwise(shown: ShownModel) -> None:
    """The output of a label is found by name; without a match nothing is called right or wrong."""
    label = shown.images.images[0][1]
    assert views.view(shown, Condition("0"))["label_index"] == label
    shown.outputs = tuple(reversed(range(25)))
    assert views.view(shown, Condition("0"))["label_index"] == 24 - label
    shown.outputs = ()
    assert views.view(shown, Condition("0"))["label_index"] is None
