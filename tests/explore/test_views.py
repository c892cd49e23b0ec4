"""What the page shows is what the model does: rows by hand from timm's weights, predictions, corruption, occlusion."""

from __future__ import annotations

import base64
import io
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import functional as F

import vitlab
from cases.exploring import PLAIN, SCENES, sharpen
from vitlab.core.anatomy import Anatomy, Block, Mixer, TokenLayout
from vitlab.corruptions.apply import corrupt
from vitlab.explore.app import open_explorer, short_names
from vitlab.explore.server import ExplorerState
from vitlab.explore.views import Condition, Query, hide, page_grid


@pytest.fixture
def shown() -> ExplorerState:
    with ExitStack() as stack:
        found = open_explorer([PLAIN], SCENES, None, 6, stack)
        sharpen(found.models[0].model)
        yield found


def pixels(shown: ExplorerState, name: str = "0") -> Tensor:
    return F.to_tensor(shown.images.picture(name))


def fed(shown: ExplorerState, pixels: Tensor) -> Tensor:
    model = shown.models[0]
    return F.normalize(pixels, model.preprocessing.mean, model.preprocessing.std)[None]


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
def test_rows_are_the_softmax_of_the_models_own_queries_and_keys(shown: ExplorerState, query: Query) -> None:
    model = shown.models[0]
    token = 0 if query.prefix == 0 else 1 + 4 * min(3, int(query.y * 4)) + min(3, int(query.x * 4))
    rows = model.rows(shown.images, Condition("0"), shown.grid, query)
    for layer, row in enumerate(rows):
        expected = by_hand(model.model, fed(shown, pixels(shown)), layer)[:, token]
        values = np.frombuffer(base64.b64decode(row["maps"]), np.uint8).reshape(3, 16) / 255
        found = values * np.array(row["peaks"])[:, None]
        np.testing.assert_allclose(found, expected[:, 1:], atol=float(expected.max()) / 500)
        np.testing.assert_allclose(row["prefix"], expected[:, :1], atol=1e-5)
        np.testing.assert_allclose(row["entropy"], torch.special.entr(expected).sum(-1), atol=1e-4)


@torch.no_grad()
def test_predictions_and_lens(shown: ExplorerState) -> None:
    model = shown.models[0]
    view = model.view(shown.images, Condition("2"), shown.grid)
    probability = model.model(fed(shown, pixels(shown, "2")))[0].softmax(-1)
    assert [entry["name"] for entry in view["predictions"]] == [
        model.classes[i] for i in probability.argsort(descending=True)[:5]
    ]
    np.testing.assert_allclose(view["predictions"][0]["probability"], probability.max(), atol=1e-5)
    assert view["layers"][-1]["lens"][0]["name"] == view["predictions"][0]["name"]
    np.testing.assert_allclose(view["layers"][-1]["lens"][0]["probability"], probability.max(), atol=1e-5)
    assert view["label"] == shown.images.name_of(shown.images.images[2][1])


def picture(view: dict) -> Tensor:
    data = base64.b64decode(view["picture"].partition(",")[2])
    return F.to_tensor(Image.open(io.BytesIO(data)))


@torch.no_grad()
def test_corruption_then_occlusion_in_the_mean_colour(shown: ExplorerState) -> None:
    model = shown.models[0]
    condition = Condition("1", "fog", 4, (0, 5))
    view = model.view(shown.images, condition, shown.grid)
    foggy = corrupt(pixels(shown, "1")[None], "fog", 4, indices=[1])[0]
    expected = foggy.clone()
    for row, column in ((0, 0), (1, 1)):  # cells 0 and 5 of 4 × 4, 8 pixels a side
        cell = expected[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
        cell.copy_(torch.tensor(model.preprocessing.mean).view(3, 1, 1).expand_as(cell))
    np.testing.assert_allclose(picture(view), expected, atol=1.01 / 255)
    probability = model.model(fed(shown, expected))[0].softmax(-1)
    np.testing.assert_allclose(view["predictions"][0]["probability"], probability.max(), atol=1e-5)


def test_one_forward_for_each_change_and_none_for_a_click(shown: ExplorerState) -> None:
    model = shown.models[0]
    count = []
    model.model.register_forward_hook(lambda *_: count.append(1))
    model.view(shown.images, Condition("0"), shown.grid)
    for column in range(4):
        model.rows(shown.images, Condition("0"), shown.grid, Query(0.5, column / 4))
    assert len(count) == 1
    model.view(shown.images, Condition("0", hidden=(3,)), shown.grid)
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
    with ExitStack() as stack:
        shown = open_explorer([model], "scenes(train=1, test=2)", None, 2, stack)
        model = shown.models[0]
        view = model.view(shown.images, Condition("0"), shown.grid)
        rows = model.rows(shown.images, Condition("0"), shown.grid, Query())
    assert sum("maps" in row for row in rows) == maps
    for layer, row in zip(view["layers"], rows, strict=True):
        assert ("maps" in row) == ("grid" in layer) and bool(layer["why"]) == ("maps" not in row)
        if "maps" in row:
            assert len(base64.b64decode(row["maps"])) == layer["heads"] * layer["grid"][0] * layer["grid"][1]
    assert view["layers"][-1]["lens"] is not None and len(view["predictions"]) == 5


def test_hiding_covers_exactly_its_cells() -> None:
    image = torch.ones(3, 10, 7)
    hidden = hide(image, [0, 5], (2, 3))
    expected = image.clone()
    for y in range(10):
        for x in range(7):
            if (y * 2 // 10) * 3 + x * 3 // 7 in (0, 5):
                expected[:, y, x] = 0
    assert torch.equal(hidden, expected)
    with pytest.raises(vitlab.VitlabError, match="invalid patch 6"):
        hide(image, [6], (2, 3))


def test_the_grid_to_click_on() -> None:
    def blocks(*grids: tuple[int, int]) -> Anatomy:
        mixers = [Mixer("attention", "", TokenLayout(grid), TokenLayout(grid)) for grid in grids]
        return Anatomy("x", tuple(Block(str(i), i, 0, mixer) for i, mixer in enumerate(mixers)), (224, 224))

    assert page_grid(blocks((56, 56), (28, 28), (14, 14), (7, 7))) == (14, 14)
    assert page_grid(blocks((4, 6))) == (4, 6)
    assert page_grid(blocks()) == (14, 14)


def test_names_that_tell_two_models_apart() -> None:
    assert short_names([PLAIN, f"{PLAIN} | ContextBroadcast()"]) == [
        "deit_tiny_patch16_224",
        "deit_tiny_patch16_224 | ContextBroadcast",
    ]
    assert short_names([PLAIN, "timm/deit_tiny_patch16_224"]) == [PLAIN, "timm/deit_tiny_patch16_224"]


@pytest.mark.parametrize(
    ("models", "images", "message"),
    [([], 2, "expected one or two"), ([PLAIN] * 3, 2, "models: 3"), ([PLAIN], 0, "invalid --images 0")],
)
def test_mistakes(models: list[str], images: int, message: str) -> None:
    with ExitStack() as stack, pytest.raises(vitlab.VitlabError, match=message):
        open_explorer(models, SCENES, None, images, stack)
