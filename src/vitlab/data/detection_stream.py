"""Test images for detection, resized as in training without a random choice, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from vitlab.data.detection import Annotated, DetectionSet
from vitlab.data.detection_batches import normalised, stacked
from vitlab.data.detection_transform import resize_pixels, resized_size
from vitlab.data.images import Channels
from vitlab.data.streaming import worker_count
from vitlab.data.worker_batches import read_batches

__all__ = ["DetectionStream"]

_FEW_IMAGES = 64  # fewer are read without worker processes


@dataclass(frozen=True, eq=False)
class DetectionStream:
    """Test images of this process, in order, in batches: without their objects, which `images[i]` has.

    Args:
        images: the test set.
        side, longest: as in `resized_size`.
        mean, std: normalisation constants per channel.
        batch_size: images per batch.
        rank, world: this process takes images rank, rank + world, ….
        device: device of the batches.
        processes: as in `DetectionFeed`.
    """

    images: DetectionSet
    side: int
    longest: int
    mean: Channels
    std: Channels
    batch_size: int = 1
    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    processes: int = -1

    def __len__(self) -> int:
        """Returns the number of batches of this process."""
        return -(-len(range(self.rank, len(self.images), self.world)) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, list[tuple[int, Annotated]]]]:
        """Yields (images, sizes, [(index, image with its objects as stored), …]); unreadable images are omitted."""
        mine = range(self.rank, len(self.images), self.world)
        plan = [list(mine[start : start + self.batch_size]) for start in range(0, len(mine), self.batch_size)]
        processes = worker_count(self.processes, few=len(mine) < _FEW_IMAGES)
        images_of = _Evaluation(self.images, self.side, self.longest)
        for rows in read_batches(images_of, plan, _readable, processes):
            if rows:
                pixels, sizes = stacked([row.pixels for row in rows])
                images = normalised(pixels, sizes, self.mean, self.std, self.device)
                yield images, sizes, [(row.number, row.original) for row in rows]


class _Evaluated(NamedTuple):
    number: int
    original: Annotated
    pixels: Tensor


@dataclass(frozen=True)
class _Evaluation(Dataset["_Evaluated | None"]):
    images: DetectionSet
    side: int
    longest: int

    def __getitem__(self, index: int) -> _Evaluated | None:
        found = self.images[index]
        if found is None:
            return None
        return _Evaluated(index, found, resize_pixels(found.pixels, resized_size(found.size, self.side, self.longest)))


def _readable(rows: list[_Evaluated | None]) -> list[_Evaluated]:
    return [row for row in rows if row is not None]
