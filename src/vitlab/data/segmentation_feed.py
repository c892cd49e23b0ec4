"""Batches of images with label maps, for training and evaluation.

Sets of images of one size that fit are stored on the device; others are read by worker processes. Both give the same
batches, because the random numbers of an image depend on (seed, epoch, position) only.

Shape legend: B batch, b batch of a process, h w pixels of the crop, H W pixels of an image.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from vitlab.core.recipe import Segmentation
from vitlab.data.augment import normalise
from vitlab.data.device_copy import per_channel, to_device
from vitlab.data.images import Channels
from vitlab.data.order import epoch_order
from vitlab.data.segmentation_augment import View, balanced, draw_view, jittered, viewed
from vitlab.data.segmentation_pairs import IGNORE, Pairs
from vitlab.data.worker_batches import read_batches

__all__ = ["PairFeed", "PairStream"]

_RESIDENT_BYTES = 2 * 2**30  # pixels of a training set that is stored on the device
_FEW = 32  # images that are read without worker processes, whose start would take longer


@dataclass(frozen=True, eq=False)
class PairFeed:
    """Training batches (images (b, 3, h, w) normalised, labels (b, h, w) uint8).

    Args:
        pairs: the training set.
        size: (h, w) of the crops.
        settings: scale, base size, balance of the classes, and jitter.
        mean, std: normalisation, for pixels in [0, 1].
        flip: probability of a horizontal flip.
        batch_size: B, over all processes.
        seed: of the run.
        rank, world: rank of this process and number of processes.
        device: device of the batches.
        processes: worker processes; 0 reads in this process, -1 starts one per core up to 8.
    """

    pairs: Pairs
    size: tuple[int, int]
    settings: Segmentation
    mean: Channels
    std: Channels
    flip: float = 0.5
    batch_size: int = 16
    seed: int = 0
    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    processes: int = -1

    def __len__(self) -> int:
        """Returns the number of full batches in an epoch."""
        return len(self.pairs) // self.batch_size

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the batches of an epoch from `start_batch` on."""
        order = epoch_order(len(self.pairs), epoch, self.seed).tolist()
        plan = [
            [
                (position, order[position])
                for position in range(batch * self.batch_size + self.rank, (batch + 1) * self.batch_size, self.world)
            ]
            for batch in range(start_batch, len(self))
        ]
        mean, std = per_channel(self.mean, self.device), per_channel(self.std, self.device)
        for views, pixels, labels in self._crops(plan, epoch):
            yield (jittered(pixels / 255, views) - mean) / std, labels

    def _crops(self, plan: list[list[tuple[int, int]]], epoch: int) -> Iterator[tuple[list[View], Tensor, Tensor]]:
        cropped = _Cropped(self.pairs, self.size, self.settings, self.flip, self.seed, epoch)
        if self._resident is not None:
            images, labels = self._resident
            for batch in plan:
                views = [cropped.view(position, labels[index]) for position, index in batch]
                rows = to_device(torch.tensor([index for _, index in batch]), self.device)
                yield views, *cropped.crops(images[rows], labels[rows], views)
            return
        on_cuda = self.device.type == "cuda"
        for views, pixels, labels in _load(cropped, plan, self.processes, on_cuda):
            yield views, pixels.to(self.device, non_blocking=on_cuda), labels.to(self.device, non_blocking=on_cuda)

    @cached_property
    def _resident(self) -> tuple[Tensor, Tensor] | None:
        """The whole set on the device, if its images have one size and fit."""
        first = self.pairs[0][0]
        if first.numel() * len(self.pairs) > _RESIDENT_BYTES:
            return None
        items = _Plain(self.pairs)
        read = list(_load(items, [[index] for index in range(len(items))], self.processes, False))
        if len({tuple(pixels.shape) for pixels, _ in read}) > 1:
            return None
        return tuple(torch.cat(each).to(self.device) for each in zip(*read, strict=True))  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class PairStream:
    """Evaluation batches (images (B, 3, H, W) normalised, labels (B, H, W) uint8), whole images in order.

    Consecutive images of one size form a batch. The stream can be iterated more than once.

    Args:
        pairs: the images.
        mean, std: normalisation, for pixels in [0, 1].
        batch_size: most images of a batch.
        rank, world: this process takes images rank, rank + world, ….
        device: device of the batches.
        processes: worker processes; 0 reads in this process, -1 starts one per core up to 8.
    """

    pairs: Pairs
    mean: Channels
    std: Channels
    batch_size: int = 8
    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    processes: int = -1

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        mean, std = per_channel(self.mean, self.device), per_channel(self.std, self.device)
        waiting: list[tuple[Tensor, Tensor]] = []
        for pair in _load(_Plain(self.pairs), self._plan, self.processes, False):
            if waiting and (waiting[0][0].shape != pair[0].shape or len(waiting) == self.batch_size):
                yield self._batch(waiting, mean, std)
                waiting = []
            waiting.append(pair)
        if waiting:
            yield self._batch(waiting, mean, std)

    @property
    def _plan(self) -> list[list[int]]:
        return [[index] for index in range(self.rank, len(self.pairs), self.world)]

    def _batch(self, pairs: Sequence[tuple[Tensor, Tensor]], mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        pixels, labels = (torch.cat(each).to(self.device) for each in zip(*pairs, strict=True))
        return normalise(pixels, mean, std), labels


@dataclass(frozen=True)
class _Plain(Dataset[Any]):
    """Whole images with labels, as batches of one."""

    pairs: Pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Any:
        return tuple(each[None] for each in self.pairs[index])


@dataclass(frozen=True)
class _Cropped(Dataset[Any]):
    """Crops with labels; an item is (position in the epoch, index)."""

    pairs: Pairs
    size: tuple[int, int]
    settings: Segmentation
    flip: float
    seed: int
    epoch: int

    def view(self, position: int, labels: Tensor) -> View:
        """The random numbers of a position, for an image with these labels (H, W)."""
        drawn = draw_view(self.settings, self.flip, self.seed, self.epoch, position)
        return balanced(labels, drawn, self.size, self.settings)

    def crops(self, images: Tensor, labels: Tensor, views: list[View]) -> tuple[Tensor, Tensor]:
        """The crops of a batch."""
        return viewed(images, labels, views, self.size, IGNORE, self.settings.base_size)

    def __getitem__(self, item: tuple[int, int]) -> Any:
        position, index = item
        pixels, labels = self.pairs[index]
        view = self.view(position, labels)
        return view, *self.crops(pixels[None], labels[None], [view])


def _load(items: Dataset[Any], plan: Sequence[Any], processes: int, pinned: bool) -> Iterator[Any]:
    """Iterate over batches of items, read by worker processes; tensors are concatenated, other values listed."""
    few = sum(map(len, plan)) < _FEW
    count = (0 if few else min(os.cpu_count() or 1, 8)) if processes < 0 else processes
    return read_batches(items, plan, _collate, count, pinned)


def _collate(items: list[Any]) -> Any:
    return tuple(torch.cat(each) if isinstance(each[0], Tensor) else list(each) for each in zip(*items, strict=True))
