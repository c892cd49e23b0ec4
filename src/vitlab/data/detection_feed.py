"""Training batches for detection.

Images are resized here and in `detection_stream`, and nowhere else (`detection_transform.resized_size`). All random
numbers are a function of (seed, epoch, position in the epoch or batch), so that the results depend neither on the
number of workers nor on the batch at which an epoch starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch.utils.data import Dataset

from vitlab.core.errors import VitlabError
from vitlab.data.detection import Annotated, DetectionSet
from vitlab.data.detection_batches import DetectionBatch, normalised, padded
from vitlab.data.detection_transform import Prepared, flipped, resized
from vitlab.data.images import Channels
from vitlab.data.order import check_batch_size, epoch_order
from vitlab.data.seeding import host_random
from vitlab.data.streaming import worker_count
from vitlab.data.worker_batches import read_batches

__all__ = ["DetectionFeed"]

_FEW_IMAGES = 64  # fewer are read without worker processes
_MOST_BROKEN = 100  # consecutive unreadable images before an error


@dataclass(frozen=True, eq=False)
class DetectionFeed:
    """Training batches of a detection set.

    Args:
        train: the training set.
        sides: lengths of the shorter side; one is drawn for each batch.
        longest: largest length of the longer side.
        mean, std: normalisation constants per channel.
        flip: probability of a horizontal flip.
        batch_size: B, over all processes.
        seed: of the run.
        rank, world: rank of this process and number of processes.
        device: device of the batches.
        processes: worker processes per rank; 0 reads in this process, -1 chooses by the number of images and cores.
    """

    train: DetectionSet
    sides: tuple[int, ...]
    longest: int
    mean: Channels
    std: Channels
    flip: float = 0.5
    batch_size: int = 16
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
        return len(self.train) // self.batch_size

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[DetectionBatch]:
        """Yields the batches of an epoch from `start_batch` on; an incomplete last batch is dropped."""
        plan = [self._rows(epoch, batch) for batch in range(start_batch, len(self))]
        processes = worker_count(self.processes, few=len(plan) * self.batch_size < _FEW_IMAGES)
        on_cuda = self.device.type == "cuda"
        images = _Training(self.train, self.longest, self.flip, self.seed, epoch)
        loader = read_batches(images, plan, padded, processes, on_cuda)
        for pixels, sizes, boxes, labels, masks in loader:
            rest = (each.to(self.device, non_blocking=on_cuda) for each in (sizes, boxes, labels, masks))
            yield DetectionBatch(normalised(pixels, sizes, self.mean, self.std, self.device), *rest)

    def _rows(self, epoch: int, batch: int) -> list[tuple[int, int, int]]:
        """Returns (position in the epoch, index of the image, side) of each image of this process in a batch."""
        chosen = int(host_random("side", self.seed, epoch, batch).integers(len(self.sides)))
        places = range(batch * self.batch_size + self.rank, (batch + 1) * self.batch_size, self.world)
        order = _order(len(self.train), epoch, self.seed)
        return [(place, order[place], self.sides[chosen]) for place in places]


@dataclass(frozen=True)
class _Training(Dataset[Prepared]):
    """Resized and flipped training images; random numbers depend on the position in the epoch only."""

    images: DetectionSet
    longest: int
    flip: float
    seed: int
    epoch: int

    def __getitem__(self, item: tuple[int, int, int]) -> Prepared:
        position, index, side = item
        prepared = resized(self._readable(index), side, self.longest)
        mirrored = host_random("flip", self.seed, self.epoch, position).random() < self.flip
        return flipped(prepared) if mirrored else prepared

    def _readable(self, index: int) -> Annotated:
        """Returns an image, or the next one that can be read."""
        for step in range(min(len(self.images), _MOST_BROKEN)):
            found = self.images[(index + step) % len(self.images)]
            if found is not None:
                return found
        raise VitlabError(f"{step + 1} images in a row from number {index} on cannot be read; check the disk")


@lru_cache(maxsize=4)
def _order(count: int, epoch: int, seed: int) -> list[int]:
    order: list[int] = epoch_order(count, epoch, seed).tolist()
    return order
