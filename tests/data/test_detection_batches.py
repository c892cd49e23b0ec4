"""Batches for detection: padding, normalisation, order, reproducibility for any number of workers and ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from vitlab.core.errors import VitlabError
from vitlab.data.detection import Annotated, no_objects
from vitlab.data.detection_batches import targets_of
from vitlab.data.detection_feed import DetectionFeed
from vitlab.data.detection_sets import open_detection
from vitlab.data.detection_stream import DetectionStream

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)


@dataclass(frozen=True)
class Mixed:
    """Images of different sizes; number 2 cannot be read, number 3 has no object."""

    classes: tuple[str, ...] = ("thing",)
    fingerprint: str = "mixed"

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> Annotated | None:
        if i == 2:
            return None
        size = (30 + i, 50 - 3 * i)
        pixels = torch.full((3, *size), 20 * i, dtype=torch.uint8)
        if i == 3:
            return no_objects(pixels)
        masks = torch.zeros(i + 1, *size, dtype=torch.uint8)
        boxes = torch.zeros(i + 1, 4)
        for k in range(i + 1):
            masks[k, k : k + 9, 2 * k : 2 * k + 7] = 1
            boxes[k] = torch.tensor([2 * k, k, 2 * k + 7, k + 9])
        count = i + 1
        return Annotated(
            pixels, boxes, torch.ones(count).long(), masks, torch.full((count,), 63.0), torch.zeros(count).bool()
        )

    def subset(self, indices: list[int]) -> Any:
        raise NotImplementedError


def feed(**changes: Any) -> DetectionFeed:
    usual = DetectionFeed(Mixed(), (32, 48), 64, MEAN, STD, batch_size=2, seed=3, processes=0)
    return replace(usual, **changes)


def same(one: Any, two: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_objects_and_pixels_are_padded() -> None:
    for batch in feed(batch_size=6).epoch(0):
        assert batch.images.shape[2] % 32 == 0 and batch.images.shape[3] % 32 == 0
        assert batch.masks.shape == (6, batch.labels.shape[1], *batch.images.shape[2:])
        for i, target in enumerate(targets_of(batch)):
            h, w = batch.sizes[i].tolist()
            inside, outside = batch.images[i, :, :h, :w], batch.images[i].clone()
            outside[:, :h, :w] = 0
            assert not outside.any() and not batch.masks[i, :, h:].any() and not batch.masks[i, :, :, w:].any()
            pixels = inside * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
            number = round(float(pixels[0, 0, 0]) * 255 / 20)
            torch.testing.assert_close(pixels, torch.full_like(pixels, 20 * number / 255))
            assert len(target["labels"]) == (0 if number == 3 else number + 1)
            assert (target["boxes"][:, 2:] > target["boxes"][:, :2]).all()
            assert (target["labels"] == 1).all()


def test_an_unreadable_image_is_replaced_by_the_next() -> None:
    (batch,) = feed(batch_size=6).epoch(0)
    counts = sorted(len(target["labels"]) for target in targets_of(batch))
    assert counts == [0, 0, 1, 2, 5, 6]


def test_batches_depend_on_seed_epoch_and_number_only() -> None:
    whole = list(feed().epoch(1))
    assert all(map(same, list(feed().epoch(1, 1)), whole[1:]))
    assert all(map(same, list(feed(processes=2).epoch(1)), whole))
    assert not all(
        batch.images.shape == other.images.shape and same(batch, other)
        for batch, other in zip(whole, feed(seed=4).epoch(1), strict=True)
    )
    first, second = (list(feed(rank=rank, world=2).epoch(1)) for rank in (0, 1))
    for batch, *ranks in zip(whole, first, second, strict=True):
        for rank, part in enumerate(ranks):
            assert torch.equal(part.sizes[0], batch.sizes[rank])
            assert same(targets_of(part)[0]["boxes"], targets_of(batch)[rank]["boxes"])


def test_one_side_per_batch_and_all_sides_occur() -> None:
    data = open_detection("scenes(train=40, test=1)", image_size=32).to_train_on()
    sides = [{tuple(row) for row in batch.sizes.tolist()} for batch in feed(train=data).epoch(0)]
    assert all(len(each) == 1 for each in sides)
    assert set().union(*sides) == {(32, 32), (48, 48)}


def test_flips_occur_with_their_probability() -> None:
    data = open_detection("scenes(train=8, test=1)", image_size=32).to_train_on()
    never, always = (feed(train=data, sides=(32,), flip=flip, batch_size=8) for flip in (0.0, 1.0))
    (plain,), (mirrored,) = never.epoch(0), always.epoch(0)
    assert torch.equal(plain.images.flip(3), mirrored.images)
    assert torch.equal(plain.masks.flip(3), mirrored.masks)


def test_an_epoch_is_one_pass() -> None:
    data = open_detection("scenes(train=7, test=1)", image_size=16).to_train_on()
    source = feed(train=data, flip=0.0, sides=(16,))
    assert len(source) == 3
    for epoch in range(2):
        images = [image for batch in source.epoch(epoch) for image in batch.images]
        assert len({image.numpy().tobytes() for image in images}) == 6


def test_test_images_come_in_order_with_the_originals() -> None:
    for world in (1, 2):
        seen = []
        for rank in range(world):
            stream = DetectionStream(Mixed(), 32, 64, MEAN, STD, batch_size=2, rank=rank, world=world, processes=0)
            for images, sizes, originals in stream:
                assert len(images) == len(sizes) == len(originals)
                for size, (index, original) in zip(sizes.tolist(), originals, strict=True):
                    assert index % world == rank and original.size == (30 + index, 50 - 3 * index)
                    assert min(size) == 32
                    seen.append(index)
        assert sorted(seen) == [0, 1, 3, 4, 5]


def test_a_batch_must_divide_over_the_ranks() -> None:
    with pytest.raises(VitlabError, match="expected a multiple of the 3 processes"):
        feed(world=3)
