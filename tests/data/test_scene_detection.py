"""Scenes as detection data: boxes, classes and masks agree with each other and with `Scenes`."""

from __future__ import annotations

import pytest
import torch
from torchvision.ops import masks_to_boxes

from vitlab.data.catalogue import open_data
from vitlab.data.detection_sets import open_detection
from vitlab.data.scene_layout import SHAPES, TEXTURES
from vitlab.data.scene_set import TEST_SCENES
from vitlab.data.scenes import CLASSES, draw_scenes


@pytest.mark.parametrize("labels", ["class", "shape", "texture"])
def test_objects_of_a_scene(labels: str) -> None:
    data = open_detection(f"scenes(train=3, test=6, seed=4, labels={labels!r})", image_size=(32, 48))
    assert data.classes == {"class": CLASSES, "shape": SHAPES, "texture": TEXTURES}[labels]
    scenes = draw_scenes(6, (32, 48), seed=4, start=TEST_SCENES)
    for i in range(6):
        found = data.test[i]
        assert found is not None and torch.equal(found.pixels, scenes.images[i])
        expected = masks_to_boxes(found.masks) + torch.tensor([0, 0, 1, 1])  # torchvision's end is inclusive
        assert torch.equal(found.boxes, expected)
        assert torch.equal(found.areas, found.masks.sum((1, 2)).float())
        visible = [k for k in range(4) if scenes.instances[i, k].any()]
        kinds = {"class": scenes.objects.labels, "shape": scenes.objects.shapes, "texture": scenes.objects.textures}
        assert found.labels.tolist() == [1 + int(kinds[labels][i, k]) for k in visible]


def test_a_set_and_its_subset() -> None:
    data = open_detection("scenes(train=5, test=2)", image_size=16)
    assert (len(data.to_train_on()), len(data.test)) == (5, 2)
    some = data.to_train_on().subset([4, 1])
    assert torch.equal(some[0].pixels, data.to_train_on()[4].pixels)  # type: ignore[union-attr]
    assert some.fingerprint != data.to_train_on().fingerprint


@pytest.mark.parametrize("labels", ["shape", "texture"])
def test_images_and_objects_have_the_same_classes(labels: str) -> None:
    data = open_data(f"scenes(train=20, test=20, labels={labels!r})", image_size=16)
    scenes = draw_scenes(20, 16, start=TEST_SCENES)
    assert torch.equal(data.test.labels, scenes.shapes if labels == "shape" else scenes.textures)
    assert data.classes == (SHAPES if labels == "shape" else TEXTURES)
