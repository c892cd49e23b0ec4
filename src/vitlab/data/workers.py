"""Training batches of large images: timm's transforms in worker processes, mixing on the device.

As in `resident`, all random numbers are a function of (seed, epoch, position in the epoch), so that the results depend
neither on the number of workers nor on the batch at which an epoch starts.

Shape legend: B batch, b batch of a process, C channels, h w pixels.
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
from timm.data.auto_augment import posterize as timm_posterize
from timm.data.auto_augment import rand_augment_transform
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import RandomResizedCropAndInterpolation
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from vitlab.core.recipe import Augment
from vitlab.data.images import ImageArray, ImageFiles
from vitlab.data.mixing import draw_mixes, mix_images, mix_labels
from vitlab.data.order import check_batch_size, epoch_order
from vitlab.data.resident import TrainingBatch
from vitlab.data.seeding import host_random

__all__ = ["Workers"]

_BICUBIC = transforms.InterpolationMode.BICUBIC


@dataclass(frozen=True, eq=False)
class Workers:
    """Training batches of a set that does not fit on the device.

    The images of a batch are distributed over the processes; each mixes its own images only, without communication.

    Args:
        train: the training images.
        size: h, w of the returned images.
        settings: the augmentation.
        batch_size: B, over all processes.
        seed: of the run.
        rank, world: rank of this process and number of processes.
        device: device of the batches.
        processes: worker processes per rank; 0 decodes in the main process, -1 starts one per core up to 8.
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
        """Validate the batch size."""
        check_batch_size(self.batch_size, self.world)

    def __len__(self) -> int:
        """Returns the number of full batches in an epoch."""
        return len(epoch_order(len(self.train), 0, self.seed, self.settings.repeats)) // self.batch_size

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[TrainingBatch]:
        """Yields the batches of an epoch from `start_batch` on; an incomplete last batch is dropped."""
        order = epoch_order(len(self.train), epoch, self.seed, self.settings.repeats).tolist()
        plan = [
            [
                (position, order[position])
                for position in range(b * self.batch_size + self.rank, (b + 1) * self.batch_size, self.world)
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
        generator = torch.Generator()  # otherwise the loader draws from the global generator
        loader: DataLoader[Any] = DataLoader(
            images, batch_sampler=plan, num_workers=processes, pin_memory=on_cuda, generator=generator
        )
        for pixels, labels in loader:
            yield pixels.to(self.device, non_blocking=on_cuda), labels.to(self.device, non_blocking=on_cuda)


@dataclass(frozen=True)
class _Seeded(Dataset[tuple[Tensor, int]]):
    """A set with a transform whose random numbers depend on the position in the epoch only."""

    images: ImageArray | ImageFiles
    transform: Callable[[Image.Image], Tensor]
    seed: int
    epoch: int

    def __getitem__(self, item: tuple[int, int]) -> tuple[Tensor, int]:
        position, index = item
        stream = host_random("transform", self.seed, self.epoch, position)
        with _seeded_global_generators(*stream.integers(2**31, size=3).tolist()):
            image, label = self.images[index]
            return self.transform(image), label


@contextmanager
def _seeded_global_generators(*seeds: int) -> Iterator[None]:
    """Temporarily seed the three global generators that timm uses; their state is restored on exit."""
    python_state, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(seeds[0])
    np.random.seed(seeds[1])
    torch.default_generator.manual_seed(seeds[2])
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)


def training_transform(
    settings: Augment, size: tuple[int, int], mean: tuple[float, ...], std: tuple[float, ...]
) -> Callable[[Image.Image], Tensor]:
    """Returns the transform of a recipe's augmentation for one image, without mixing."""
    steps: list[Any] = []
    if settings.crop == "resized":
        steps.append(RandomResizedCropAndInterpolation(size, interpolation="bicubic"))
    else:
        steps.append(transforms.Resize(size, _BICUBIC))
        if settings.crop == "pad":
            steps.append(transforms.RandomCrop(size, padding=(size[1] // 8, size[0] // 8)))
    steps.append(transforms.RandomHorizontalFlip(settings.flip))
    if settings.randaugment:
        steps.append(_rand_augment(settings.randaugment, size, mean))
    steps += [transforms.ToTensor(), transforms.Normalize(mean, std)]
    if settings.erasing:
        steps.append(RandomErasing(settings.erasing, mode="pixel", device="cpu"))
    composed: Callable[[Image.Image], Tensor] = transforms.Compose(steps)
    return composed


def _rand_augment(policy: str, size: tuple[int, int], mean: tuple[float, ...]) -> Callable[[Image.Image], Image.Image]:
    """timm's RandAugment, with our `posterize`."""
    fill = tuple(round(255 * value) for value in mean)
    augment = rand_augment_transform(policy, {"translate_const": int(min(size) * 0.45), "img_mean": fill})
    for operation in augment.ops:
        if operation.name.startswith("Posterize"):
            operation.aug_fn = posterize
    return augment  # type: ignore[no-any-return]


def posterize(image: Image.Image, bits: int, **others: Any) -> Image.Image:
    """timm's posterize; 0 bits, which RandAugment draws at magnitude 10 and Pillow 13 refuses, is a black image.

    >>> white = Image.new("L", (1, 1), 255)
    >>> posterize(white, 0).getpixel((0, 0)), posterize(white, 2).getpixel((0, 0))
    (0, 192)
    """
    if bits < 1:
        return Image.new(image.mode, image.size)
    kept: Image.Image = timm_posterize(image, bits)
    return kept
