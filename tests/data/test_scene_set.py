"""Scenes as a data set: labels without drawing, and single images equal those of the full set."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vitlab.core.errors import VitlabError
from vitlab.data.scene_set import TEST_SCENES, open_scenes
from vitlab.data.scenes import draw_scenes


@pytest.mark.parametrize("cues", ["free", "agree", "conflict"])
@pytest.mark.parametrize("objects", [1, 4])
def test_a_subset_equals_the_images_of_the_full_set(cues, objects) -> None:
    data = open_scenes(30, 50, (16, 24), seed=5, objects=objects, cues=cues)
    for images, start in ((data.train, 0), (data.test, TEST_SCENES)):
        whole = draw_scenes(len(images), (16, 24), 5, start, objects, cues=cues)
        assert torch.equal(images.labels, whole.labels) and len(set(whole.labels.tolist())) > 2
        places = [29, 3, 3, 17]
        assert torch.equal(images.subset(places).pixels, whole.images[places])
        picture, label = images[-2]
        assert np.array_equal(np.asarray(picture).transpose(2, 0, 1), whole.images[-2]) and label == whole.labels[-2]


def test_every_setting_is_in_the_fingerprint() -> None:
    settings = [{}, {"size": 33}, {"seed": 1}, {"objects": 5}, {"cues": "conflict"}, {"train": 11}]
    prints = [open_scenes(**{"train": 10, "test": 10, **each}).train.fingerprint for each in settings]
    assert len(set(prints)) == len(prints)
    assert open_scenes(10, 20).train.fingerprint == prints[0] != open_scenes(10, 10).test.fingerprint


def test_ten_million_large_scenes_are_opened_without_drawing() -> None:
    """They would take 0.5 PB: opening them is possible only because none is drawn."""
    data = open_scenes(10_000_000, 10, 4096)
    assert len(data.train) == 10_000_000 and data.train.labels.bincount().min() > 390_000


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"size": 7}, "size=7"), ({"train": 0}, "count=0"), ({"objects": 9}, "objects=9"), ({"cues": "x"}, "no cues 'x'")],
)
def test_wrong_settings(wrong, message) -> None:
    with pytest.raises(VitlabError, match=message):
        open_scenes(**{"train": 2, "test": 2, **wrong})
