"""Batches from worker processes are bit-identical for any number of workers and any first batch."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Augment
from vitlab.data.folders import open_folder
from vitlab.data.images import DataSet, ImageArray
from vitlab.data.mixing import draw_mixes, mix_images
from vitlab.data.resident import TrainingBatch
from vitlab.data.scenes import MEAN, STD, draw_scenes
from vitlab.data.streaming import ImageStream
from vitlab.data.workers import Workers, training_transform
from vitlab.preprocessing import Preprocessing

FULL = Augment(crop="resized", randaugment="rand-m9-n2-mstd0.5-inc1", erasing=0.5, mixup=0.8, cutmix=1.0)
UNMIXED = Augment(crop="resized", randaugment="rand-m9-n2-mstd0.5-inc1", erasing=0.5)
STILL = Augment(crop="none", flip=0.0)
NAMES = tuple(map(str, range(40)))


def workers(settings: Augment = FULL, count: int = 22, **others: object) -> Workers:
    scenes = draw_scenes(count, size=24)
    images = ImageArray(scenes.images, torch.arange(count), NAMES, MEAN, STD)
    return Workers(images, (16, 20), settings, **{"batch_size": 4, "seed": 3, "processes": 0, **others})


def same(first: tuple[torch.Tensor, ...], second: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("crop", ["resized", "pad"])
def test_the_number_of_processes_changes_nothing(crop: str) -> None:
    settings = dataclasses.replace(FULL, crop=crop)
    torch.manual_seed(1)
    alone = list(workers(settings).epoch(2))
    torch.manual_seed(2)
    shared = list(workers(settings, processes=2).epoch(2))
    assert len(alone) == len(shared) == len(workers(settings)) == 5 and all(map(same, alone, shared))
    assert alone[0].images.shape == (4, 3, 16, 20)


@pytest.mark.parametrize("processes", [0, 2])
def test_an_epoch_can_start_at_any_batch(processes: int) -> None:
    whole = list(workers().epoch(1))
    for start in (0, 3, 5):
        rest = list(workers(processes=processes).epoch(1, start_batch=start))
        assert len(rest) == 5 - start and all(map(same, rest, whole[start:]))


def test_epochs_and_seeds_differ() -> None:
    first, other, reseeded = (next(feed) for feed in (workers().epoch(0), workers().epoch(1), workers(seed=4).epoch(0)))
    assert not torch.equal(first.labels, other.labels) and not torch.equal(first.labels, reseeded.labels)


@pytest.mark.parametrize("settings", [UNMIXED, dataclasses.replace(UNMIXED, repeats=3)], ids=["once", "repeated"])
def test_two_ranks_share_the_batches_of_one(settings: Augment) -> None:
    left, right = (workers(settings, rank=rank, world=2).epoch(1) for rank in (0, 1))
    for batch, *pieces in zip(workers(settings).epoch(1), left, right, strict=True):
        joined = TrainingBatch(*(torch.stack(parts, 1).flatten(0, 1) for parts in zip(*pieces, strict=True)))
        assert same(joined[:2], batch[:2]) and torch.equal(joined.weights, batch.weights)
        assert all(torch.equal(piece.partners, piece.labels.flip(0)) for piece in pieces)  # of its own share


def test_mixing_is_that_of_the_batch_number() -> None:
    """The images, mixed by hand from an unmixed epoch of the same seed."""
    for number, (plain, mixed) in enumerate(zip(workers(UNMIXED).epoch(1), workers().epoch(1), strict=True)):
        mixes = draw_mixes(FULL, (16, 20), 3, 1, range(number, number + 1))
        assert torch.equal(mixed.images, mix_images(plain.images[None], mixes)[0])
        assert torch.equal(mixed.labels, plain.labels) and torch.equal(mixed.partners, plain.labels.flip(0))
        assert (mixed.weights == mixes.weights[0]).all() and mixed.weights.shape == (4,)


def test_without_augmentation_each_image_comes_once_resized_and_normalised() -> None:
    feed = workers(STILL)
    seen = []
    for batch in feed.epoch(0):
        for image, label in zip(batch.images, batch.labels.tolist(), strict=True):
            pixels = np.asarray(feed.train[label][0].resize((20, 16), Image.Resampling.BICUBIC)) / 255
            expected = torch.tensor((pixels - MEAN) / STD, dtype=torch.float32).permute(2, 0, 1)
            assert torch.allclose(image, expected, atol=1e-5)
            seen.append(label)
    assert len(set(seen)) == len(seen) == 20


def test_repeated_augmentation_shows_an_image_in_different_ways() -> None:
    batch = next(workers(dataclasses.replace(UNMIXED, repeats=2, erasing=0.0)).epoch(0))
    assert batch.labels[0] == batch.labels[1] != batch.labels[2] == batch.labels[3]
    assert not torch.equal(batch.images[0], batch.images[1])
    still = next(workers(dataclasses.replace(STILL, repeats=2)).epoch(0))
    assert torch.equal(still.images[0], still.images[1])


# -- files that cannot be read ----------------------------------------------------------------------------------------


def folder(root: Path) -> DataSet:
    """Two classes of four images in each split, each with a different grey; the second of each class is broken."""
    for split in ("train", "test"):
        for c in range(2):
            (root / split / str(c)).mkdir(parents=True)
            for i in range(4):
                path = root / split / str(c) / f"{i}.png"
                Image.new("RGB", (20, 20), (10 + 100 * c + 20 * i,) * 3).save(path)
                if i == 1:
                    path.write_bytes(path.read_bytes()[:40])
    return open_folder(root, mean=(0.0,) * 3, std=(1.0,) * 3)


def evaluated(data: DataSet, processes: int, batch_size: int = 2) -> ImageStream:
    how = Preprocessing((16, 16), (0.0,) * 3, (1.0,) * 3)
    return ImageStream(data.test, how.transform(), how.mean, how.std, batch_size, range(2), processes=processes)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("processes", [0, 2])
def test_broken_files_are_skipped_in_training_and_left_out_of_evaluation(processes: int, tmp_path: Path) -> None:
    data = folder(tmp_path)
    feed = Workers(data.to_train_on(), (16, 16), STILL, batch_size=2, processes=processes)
    batches = list(feed.epoch(0))
    greys = sorted(round(255 * float(image.mean())) for batch in batches for image in batch.images)
    assert greys == sorted([10, 50, 50, 70, 110, 150, 150, 170])  # the next good one stands in
    assert all(
        label == (image.mean() > 0.4)
        for batch in batches
        for image, label in zip(batch.images, batch.labels, strict=True)
    )
    tested = list(evaluated(data, processes))
    assert sorted(label for _, labels in tested for label in labels.tolist()) == [0] * 3 + [1] * 3
    greys = sorted(round(255 * float(image.mean())) for images, _ in tested for image in images)
    assert greys == [10, 50, 70, 110, 150, 170]
    assert int(data.test.broken.sum()) == int(data.train.broken.sum()) == 2


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_batch_of_broken_files_only_is_skipped(tmp_path: Path) -> None:
    data = folder(tmp_path)
    assert [len(labels) for _, labels in evaluated(data, 0, batch_size=1)] == [1] * 6


def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(VitlabError, match="batch_size=4; expected a multiple of the 3 processes"):
        workers(world=3)


@pytest.mark.parametrize("increasing", ["", "-inc1"])
def test_randaugment_equals_earlier_versions_at_every_magnitude(increasing: str) -> None:
    """From no bit, a black image, to four; against a bit mask. Pillow 13 refuses to keep no bit."""
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3) * 5
    for magnitude in range(11):
        settings = Augment("none", flip=0.0, randaugment=f"rand-m{magnitude}-n1{increasing}")
        transform = training_transform(settings, (4, 4), (0.0,) * 3, (1.0,) * 3)
        (operation,) = (each for each in transform.transforms[2].ops if each.name.startswith("Posterize"))
        operation.prob = 1.0
        bits = 4 - int(magnitude * 0.4) if increasing else int(magnitude * 0.4)
        mask = 256 - 2 ** (8 - bits)
        assert np.array_equal(operation(Image.fromarray(pixels)), pixels & mask)
