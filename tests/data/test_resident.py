"""Batches of a resident set are bit-identical for any first batch and any number of processes."""

from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_map
from torchvision.transforms import functional as tv

from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Augment
from vitlab.data.augment import draw_augment
from vitlab.data.mixing import draw_mixes
from vitlab.data.resident import Resident, TrainingBatch, prepare
from vitlab.data.scenes import MEAN, STD, draw_scenes

FULL = Augment(randaugment="rand-m9-n2-mstd0.5-inc1", erasing=0.25, mixup=0.8, cutmix=1.0)
STILL = Augment(crop="none", flip=0.0)


def resident(settings: Augment = FULL, count: int = 50, **others: object) -> Resident:
    scenes = draw_scenes(count, size=32)
    return Resident(scenes.images, torch.arange(count), MEAN, STD, settings, **{"batch_size": 8, "seed": 3, **others})


def same(first: TrainingBatch, second: TrainingBatch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("chunk", [None, 24])
def test_an_epoch_can_start_at_any_batch(chunk: int | None) -> None:
    whole = list(resident(chunk=chunk).epoch(2))
    assert len(whole) == 6 == len(resident())
    for start in (0, 1, 4, 6):
        rest = list(resident(chunk=chunk).epoch(2, start_batch=start))
        assert len(rest) == 6 - start and all(map(same, rest, whole[start:]))


def test_epochs_and_seeds_differ() -> None:
    first, other, reseeded = next(resident().epoch(0)), next(resident().epoch(1)), next(resident(seed=4).epoch(0))
    assert not torch.equal(first.images, other.images) and not torch.equal(first.images, reseeded.images)


@pytest.mark.parametrize("settings", [FULL, Augment(repeats=3)])
def test_two_processes_share_the_batches_of_one(settings: Augment) -> None:
    alone = resident(settings).epoch(1)
    left, right = (resident(settings, rank=rank, world=2).epoch(1) for rank in (0, 1))
    for batch, *pieces in zip(alone, left, right, strict=True):
        joined = TrainingBatch(*(torch.stack(parts, 1).flatten(0, 1) for parts in zip(*pieces, strict=True)))
        assert same(joined, batch)


def test_each_image_comes_once_with_its_label() -> None:
    data = resident(STILL)
    seen = []
    for batch in data.epoch(0):
        assert torch.equal(batch.images, tv.normalize(data.images[batch.labels].float() / 255, MEAN, STD))
        assert (batch.weights == 1).all()
        seen += batch.labels.tolist()
    assert len(set(seen)) == len(seen) == 48


def test_mixing_is_of_each_batch_with_its_reverse() -> None:
    plain = list(resident(STILL, chunk=16).epoch(0))
    mixed = list(resident(Augment(crop="none", flip=0.0, mixup=1.0), chunk=16).epoch(0))
    for a, b in zip(plain, mixed, strict=True):
        assert torch.equal(b.partners, a.labels.flip(0)) and len(b.weights.unique()) == 1
        weight = b.weights[0]
        torch.testing.assert_close(b.images, weight * a.images + (1 - weight) * a.images.flip(0))
    assert len({batch.weights[0].item() for batch in mixed}) == 6


@pytest.mark.parametrize("world", [1, 3])
def test_evaluation_counts_every_image_once(world: int) -> None:
    shares = [resident(batch_size=9, rank=rank, world=world).evaluation() for rank in range(world)]
    seen = torch.cat([labels for share in shares for _, labels in share])
    assert torch.equal(seen.sort().values, torch.arange(50))


def test_evaluation_keeps_the_short_batch_and_the_dtype() -> None:
    batches = list(resident(batch_size=16, dtype=torch.bfloat16).evaluation())
    assert [len(labels) for _, labels in batches] == [16, 16, 16, 2] and batches[0][0].dtype == torch.bfloat16


def test_repeats_show_fewer_images_in_an_epoch_of_the_same_length() -> None:
    labels = torch.cat([batch.labels for batch in resident(Augment(repeats=3), count=300).epoch(0)])
    assert len(labels) == 256 and len(labels.unique()) == 86  # ⌈256 / 3⌉


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_host_does_not_synchronise_with_the_device() -> None:
    scenes = draw_scenes(256, size=32)
    data = Resident(scenes.images.cuda(), scenes.labels.cuda(), MEAN, STD, FULL, batch_size=32, chunk=64)
    first = list(data.epoch(0))
    torch.cuda.set_sync_debug_mode("error")
    try:
        again = list(data.epoch(0))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(map(same, first, again))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_applies_draws_as_the_cpu_does() -> None:
    images = draw_scenes(256, size=32).images
    draws = draw_augment(256, (3, 32, 32), FULL, torch.Generator().manual_seed(0))
    mixes = draw_mixes(FULL, (32, 32), 0, 0, range(4))
    cpu = (images, draws, mixes, torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None])
    cuda = tree_map(lambda part: part.cuda() if isinstance(part, torch.Tensor) else part, cpu)
    difference = (prepare(*cuda, torch.float32).cpu() - prepare(*cpu, torch.float32)).abs()
    assert difference.max() < 0.5 and difference.mean() < 1e-3  # a grey level here and there, stretched by what follows


def test_mistakes_are_named() -> None:
    with pytest.raises(VitlabError, match="use a smaller batch"):
        next(resident(batch_size=64).epoch(0))
    with pytest.raises(VitlabError, match="divisible by world"):
        resident(world=3)
    with pytest.raises(VitlabError, match="N labels"):
        Resident(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.arange(3), MEAN, STD)
