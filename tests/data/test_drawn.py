"""Drawn images: nothing is drawn before it is asked for, and what is drawn is what a full drawing has there."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from vitlab.core.errors import VitlabError
from vitlab.core.step_cache import step_cache
from vitlab.data.drawn import DrawnImages
from vitlab.data.images import ImageArray, in_memory

CLASSES = ("even", "odd")


class Counter:
    """A generator whose image i is the colour (i, i + 1, i + 2), and the indices that it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, indices: torch.Tensor) -> torch.Tensor:
        self.asked += indices.tolist()
        colours = (indices[:, None] + torch.arange(3)).to(torch.uint8)
        return colours[:, :, None, None].expand(-1, -1, 5, 4)


def counted(count: int = 40) -> tuple[DrawnImages, Counter]:
    counter, indices = Counter(), torch.arange(100, 100 + count)
    return DrawnImages(counter, "counter 1", (5, 4), indices, indices % 2, CLASSES, (0.1, 0.2, 0.3)), counter


def test_only_requested_images_are_drawn() -> None:
    images, counter = counted()
    few = images.subset([30, 2, 7]).subset(torch.tensor([True, False, True]))
    assert (len(images), len(few), few.labels.tolist(), few.mean) == (40, 2, [0, 1], (0.1, 0.2, 0.3))
    assert len(images.fingerprint) == 16 and repr(few) == "DrawnImages(2 images, 2 classes)"
    assert counter.asked == []
    picture, label = few[-1]
    assert (picture.size, picture.getpixel((3, 4)), label) == ((4, 5), (107, 108, 109), 1)
    assert counter.asked == [107]
    with pytest.raises(IndexError):
        few[2]


def test_images_in_memory_are_drawn_once() -> None:
    images, counter = counted()
    few = images.subset([9, 4])
    array = in_memory(few)
    assert isinstance(array, ImageArray) and (array.classes, array.mean) == (CLASSES, (0.1, 0.2, 0.3))
    assert array.images[:, 0, 0, 0].tolist() == [109, 104] and array.labels.tolist() == [1, 0]
    assert in_memory(few).images is array.images and counter.asked == [109, 104]
    assert in_memory(array) is array
    assert in_memory(images.subset([])).images.shape == (0, 3, 5, 4)


def test_fingerprints_depend_on_generator_indices_labels_and_classes() -> None:
    images, _ = counted()
    others = [
        replace(images, generator="counter 2"),
        replace(images, labels=1 - images.labels),
        replace(images, classes=("odd", "even")),
        images.subset(range(39)),
        images.subset(range(39, -1, -1)),
    ]
    assert len({each.fingerprint for each in (images, *others)}) == 6
    assert counted()[0].fingerprint == images.fingerprint == images.subset(range(40)).fingerprint


def test_drawing_reports_progress() -> None:
    reported: list[tuple] = []
    counter = Counter()

    def draw(indices: torch.Tensor) -> torch.Tensor:
        return counter(indices)[:, :, :1, :1].expand(-1, -1, 2048, 4096)

    images = DrawnImages(draw, "large", (2048, 4096), torch.arange(5), torch.zeros(5, dtype=torch.int64), CLASSES)
    with step_cache(None, lambda *what: reported.append(what)):
        images.pixels
    assert reported == [(f"drawing images, {start} of 5", None, "begun") for start in (0, 2, 4)]
    assert counter.asked == list(range(5))


def test_sets_that_exceed_memory_raise() -> None:
    count = 10_000_000
    images = DrawnImages(Counter(), "x", (8192, 8192), torch.arange(count), torch.zeros(count).long(), CLASSES)
    with pytest.raises(VitlabError, match=r"images of 8192x8192 needs about 2,013.3 TB of memory.* use fewer"):
        images.pixels


def test_labels_must_fit() -> None:
    with pytest.raises(VitlabError, match="labels range from 0 to 2, but there are 2 classes"):
        DrawnImages(Counter(), "x", (4, 4), torch.arange(3), torch.arange(3), CLASSES)


def test_worker_processes_can_draw_images() -> None:
    images, _ = counted(3)
    again = pickle.loads(pickle.dumps(images))
    assert np.array_equal(np.asarray(again[2][0]), np.asarray(images[2][0]))
