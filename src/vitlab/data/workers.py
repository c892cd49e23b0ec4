"""Large images: decoded and augmented by worker processes with timm's pieces, mixed on the device.

As in `resident`, everything is a function of (seed, epoch, place in the epoch): each image's transform is seeded by its
place, so that neither the number of workers nor where an epoch is entered changes a bit.

Shape legend: B batch, b share of a process, C channels, h w pixels.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image
from timm.data.auto_augment import rand_augment_transform
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import RandomResizedCropAndInterpolation
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Augment
from vitlab.data.images import ImageArray, ImageFiles
from vitlab.data.mixing import draw_mixes, mix_images, mix_labels
from vitlab.data.order import epoch_order
from vitlab.data.resident import TrainingBatch
from vitlab.data.seeding import host_random

__all__ = ["Workers"]

_BICUBIC = transforms.InterpolationMode.BICUBIC


@dataclass(frozen=True, eq=False)
class Workers:
    """Batches of a set that is too large to live on the device.

    Processes share a batch image by image; each mixes its share with itself, so that no image travels between them.

    Args:
        train: what `epoch` walks through.
        size: h, w of the images that come out.
        settings: the augmentation.
        batch_size: B, over all processes.
        seed: of the run.
        rank, world: which process of how many.
        device: where batches go.
        processes: workers of each process; 0 decodes in the process itself.
    """

    train: ImageArray | ImageFiles
    size: tuple[int, int]
    settings: Augment = field(default_factory=Augment)
    batch_size: int = 128
    seed: int = 0
    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    processes: int = -1

    def __post_init__(self) -> None:
        """Refuse a batch that does not divide among the processes."""
        if self.batch_size % self.world:
            raise VitlabError(
                f"batch_size={self.batch_size} does not divide among {self.world} processes; change one of them"
            )

    def __len__(self) -> int:
        """Full batches of an epoch."""
        return len(epoch_order(len(self.train), 0, self.seed, self.settings.repeats)) // self.batch_size

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[TrainingBatch]:
        """The batches of an epoch from `start_batch` on; the last, short one is dropped."""
        order = epoch_order(len(self.train), epoch, self.seed, self.settings.repeats).tolist()
        plan = [
            [
                (place, order[place])
                for place in range(b * self.batch_size + self.rank, (b + 1) * self.batch_size, self.world)
            ]
            for b in range(start_batch, len(self))
        ]
        transform = training_transform(self.settings, self.size, self.train.mean, self.train.std)
        images = _Seeded(self.train, transform, self.seed, epoch)
        for number, (pixels, labels) in enumerate(self._loader(images, plan), start_batch):
            mixes = draw_mixes(self.settings, self.size, self.seed, epoch, range(number, number + 1))
            mixed = mix_images(pixels[None], type(mixes)(*(part.to(self.device) for part in mixes)))[0]
            partners, weights = (part[0].to(self.device) for part in mix_labels(labels[None].cpu(), mixes))
            yield TrainingBatch(mixed, labels, partners, weights)

    def _loader(self, images: _Seeded, plan: list[list[tuple[int, int]]]) -> Iterator[tuple[Tensor, Tensor]]:
        processes = min(os.cpu_count() or 1, 8) if self.processes < 0 else self.processes
        on_cuda = self.device.type == "cuda"
        own = torch.Generator()  # else the loader draws from the caller's
        loader: DataLoader[Any] = DataLoader(
            images, batch_sampler=plan, num_workers=processes, pin_memory=on_cuda, generator=own
        )
        for pixels, labels in loader:
            yield pixels.to(self.device, non_blocking=on_cuda), labels.to(self.device, non_blocking=on_cuda)


@dataclass(frozen=True)
class _Seeded(Dataset[tuple[Tensor, int]]):
    """A set under a transform whose random numbers depend on the place in the epoch alone."""

    images: ImageArray | ImageFiles
    transform: Callable[[Image.Image], Tensor]
    seed: int
    epoch: int

    def __getitem__(self, item: tuple[int, int]) -> tuple[Tensor, int]:
        place, index = item
        stream = host_random("transform", self.seed, self.epoch, place)
        with _drawing(*stream.integers(2**31, size=3).tolist()):
            image, label = self.images[index]
            return self.transform(image), label


@contextmanager
def _drawing(*seeds: int) -> Iterator[None]:
    """Random numbers from these seeds, and then from where they were: timm draws from all three generators."""
    python, numpy, torchs = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(seeds[0])
    np.random.seed(seeds[1])
    torch.default_generator.manual_seed(seeds[2])
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(torchs)


def training_transform(
    settings: Augment, size: tuple[int, int], mean: tuple[float, ...], std: tuple[float, ...]
) -> Callable[[Image.Image], Tensor]:
    """What a recipe's augmentation does to one image, up to mixing."""
    steps: list[Any] = []
    if settings.crop == "resized":
        steps.append(RandomResizedCropAndInterpolation(size, interpolation="bicubic"))
    else:
        steps.append(transforms.Resize(size, _BICUBIC))
        if settings.crop == "pad":
            steps.append(transforms.RandomCrop(size, padding=(size[1] // 8, size[0] // 8)))
    steps.append(transforms.RandomHorizontalFlip(settings.flip))
    if settings.randaugment:
        fill = tuple(round(255 * value) for value in mean)
        steps.append(
            rand_augment_transform(settings.randaugment, {"translate_const": int(min(size) * 0.45), "img_mean": fill})
        )
    steps += [transforms.ToTensor(), transforms.Normalize(mean, std)]
    if settings.erasing:
        steps.append(RandomErasing(settings.erasing, mode="pixel", device="cpu"))
    return transforms.Compose(steps)
