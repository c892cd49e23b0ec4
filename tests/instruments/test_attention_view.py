"""The stored view equals the image traces, quantised to bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import vitlab
from cases.attention import FAMILY, pictures, sharp
from vitlab.core.batches import Batches
from vitlab.core.measurement import Measurement
from vitlab.instruments.attention_view import coarsen
from vitlab.instruments.shared.image_trace import image_tracer


def test_bytes_are_the_rows_of_the_lattice() -> None:
    case = FAMILY["deit_distilled"]
    model, images = sharp(case), pictures(case, 3)
    found = vitlab.measure("attention_view", model, [images[:1], images[1:]], images=2, lattice=2)
    with image_tracer(model, case.size) as look:
        layer = look(images[1:2]).layers[1]
    # two prefix tokens, then the tokens at rows and columns 1 and 3 of 4: the middles of a 2 × 2 lattice
    tokens = [0, 1, *(2 + 4 * row + column for row in (1, 3) for column in (1, 3))]
    rows = torch.stack([layer.row(token) for token in tokens], 1).numpy()
    kept = found.values["maps of blocks.1"][1] / 255 * found.values["peak of blocks.1"][1][..., None]
    np.testing.assert_allclose(kept, rows[..., 2:], atol=rows.max() / 509)
    np.testing.assert_allclose(found.values["prefix of blocks.1"][1], rows[..., :2], atol=1e-6)
    entropy = -np.where(rows > 0, rows * np.log(np.maximum(rows, 1e-30)), 0).sum(-1)
    np.testing.assert_allclose(found.values["entropy of blocks.1"][1], entropy, atol=1e-4)


@torch.no_grad()
def test_predictions_pictures_and_names() -> None:
    case = FAMILY["vit"]
    model, images = sharp(case), pictures(case)
    names = tuple("abcdefg")
    batches = Batches([(images, torch.tensor([0, 1]))], (0.5,) * 3, (0.5,) * 3, names)
    found = vitlab.measure("attention_view", model, batches, picture=16)
    probability = model(images).softmax(-1)
    order = probability.argsort(1, descending=True)[:, :5]
    assert found.values["class"].tolist() == [[names[i] for i in row] for row in order.tolist()]
    assert found.values["label"].tolist() == ["a", "b"]
    np.testing.assert_allclose(found.values["probability"], probability.gather(1, order).numpy(), atol=1e-5)
    np.testing.assert_allclose(found.values["lens probability"][:, -1], found.values["probability"][:, :3], atol=1e-5)
    information = 1 - torch.special.entr(probability.double()).sum(1) / np.log(7)
    np.testing.assert_allclose(found.values["lens information"][:, -1], information, atol=1e-5)
    pixels = images.mul(0.5).add(0.5).unflatten(2, (16, 2)).unflatten(4, (16, 2)).mean((3, 5)).mul(255)
    np.testing.assert_allclose(found.values["pictures"], pixels.permute(0, 2, 3, 1).numpy(), atol=0.51)


@pytest.mark.parametrize("family", ["swin", "pvt_v2", "hiera"])
def test_pyramids_and_windows_are_kept_and_stored(family: str, tmp_path: Path) -> None:
    case = FAMILY[family]
    found = vitlab.measure("attention_view", sharp(case), [pictures(case)], side=4)
    back = Measurement.load(found.save(tmp_path / "view"))
    for index, layer in enumerate(found.axes["layer"]):
        grid = found.values["grid"][index]
        maps = back.values[f"maps of {layer}"]
        assert maps.shape[:1] + maps.shape[2:] == (2, 49, grid.prod()) and grid.max() <= 4
        masses = maps.astype(float).sum(-1) / 255 * back.values[f"peak of {layer}"]
        np.testing.assert_allclose(masses, 1, atol=0.03)  # coarse cells add up what they cover
    assert found.values["why no lens"][0] and not found.values["why no lens"][-1]
    assert np.isnan(found.values["lens probability"][0, 0]).all() and np.isnan(found.values["lens information"][0, 0])


def test_coarse_cells_add_up() -> None:
    maps = torch.rand(2, 24)
    small, grid = coarsen(maps, (4, 6), 2)
    expected = maps.view(2, 2, 2, 2, 3).sum((2, 4))
    assert grid == (2, 2)
    torch.testing.assert_close(small.view(2, 2, 2), expected)


def test_a_model_without_maps_keeps_its_predictions() -> None:
    import timm

    model = timm.create_model("resnet10t", num_classes=7)
    found = vitlab.measure("attention_view", model, [torch.rand(2, 3, 64, 64)])
    assert not any(name.startswith("maps") for name in found.values) and all(found.values["why"])
    assert found.values["class"][0, 0].startswith("class ")


def test_fewer_images_than_asked_for_are_all_shown() -> None:
    case = FAMILY["vit"]
    found = vitlab.measure("attention_view", sharp(case), [pictures(case)[:1]])
    assert len(found.values["pictures"]) == 1 and found.provenance["images"] == 1
    with pytest.raises(vitlab.VitlabError, match="no images"):
        vitlab.measure("attention_view", sharp(case), [])


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"images": 0}, "from 1 to 1,000"), ({"lattice": 0}, "lattice=0")],
)
def test_mistakes(settings: dict[str, int], message: str) -> None:
    case = FAMILY["vit"]
    with pytest.raises(vitlab.VitlabError, match=message):
        vitlab.measure("attention_view", sharp(case), [pictures(case)], **settings)
