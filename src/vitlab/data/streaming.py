"""Evaluation batches of an image set, decoded on demand by worker processes in constant memory.

Shape legend: B batch, h w pixels, n images of this process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vitlab.core.errors import VitlabError
from vitlab.data.augment import normalise
from vitlab.data.device_copy import per_channel
from vitlab.data.images import UNLABELLED, ImageArray, ImageSet, drop_broken

__all__ = ["ImageStream", "TransformedImages", "worker_count"]

#: Decoded pixels of at most this many bytes are cached for the next pass (3,500 images of 224 × 224).
_CACHE_BYTES = 512 * 2**20

#: Fewer images than this are decoded without worker processes, whose start would take longer.
_FEW_IMAGES = 128


@dataclass(frozen=True, eq=False)
class ImageStream:
    """Batches of (images, labels) that can be iterated more than once, always in the same order.

    Images that cannot be read are skipped. Small sets are decoded once and cached; for others only the prefetched
    batches are in memory.

    Args:
        images: the image set.
        transform: maps an RGB image to pixels, (3, h, w) uint8, all of one size.
        mean, std: normalisation constants, for pixels in [0, 1].
        batch_size: B.
        outputs: for each class of the set, the label to return; None returns `UNLABELLED` for every image.
        rank, world: this process takes images rank, rank + world, ….
        device: device of the batches.
        processes: number of worker processes; 0 decodes in this process, -1 chooses by the number of images and cores.

    >>> red = ImageArray(torch.zeros(3, 3, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0]), ("cat", "dog"))
    >>> from torchvision.transforms.functional import pil_to_tensor
    >>> stream = ImageStream(red, pil_to_tensor, (0.5,) * 3, (0.5,) * 3, batch_size=2, outputs=(7, 4))
    >>> [(float(images.min()), labels.tolist()) for images, labels in stream], len(stream)
    ([(-1.0, [7, 4]), (-1.0, [7])], 2)
    """

    images: ImageSet
    transform: Callable[[Image.Image], Tensor]
    mean: Sequence[float]
    std: Sequence[float]
    batch_size: int = 64
    outputs: Sequence[int] | None = None
    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    processes: int = -1
    _cached: list[tuple[Tensor, Tensor]] = field(default_factory=list, init=False)

    def __len__(self) -> int:
        """Returns the number of batches of this process, including batches of unreadable images only."""
        return -(-len(self._mine) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        mean, std = per_channel(self.mean, self.device), per_channel(self.std, self.device)
        on_cuda = self.device.type == "cuda"
        for pixels, labels in self._pixels():
            pixels = pixels.to(self.device, non_blocking=on_cuda)
            yield normalise(pixels, mean, std), labels.to(self.device, non_blocking=on_cuda)

    @property
    def _mine(self) -> range:
        return range(self.rank, len(self.images), self.world)

    def _pixels(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields batches of uint8 pixels and labels, from the cache after a complete pass."""
        if self._cached:
            yield from self._cached
            return
        cached: list[tuple[Tensor, Tensor]] | None = []
        size = 0
        for pixels, labels in self._decoded():
            pixels, labels = drop_broken(pixels, labels)
            if not len(labels):
                continue
            size += pixels.nbytes
            batch = pixels, self._mapped(labels)
            cached = [*cached, batch] if cached is not None and size <= _CACHE_BYTES else None
            yield batch
        self._cached.extend(cached or [])

    def _mapped(self, labels: Tensor) -> Tensor:
        if self.outputs is None:
            return torch.full_like(labels, UNLABELLED)
        return torch.tensor(self.outputs, dtype=torch.int64)[labels]

    def _decoded(self) -> Iterator[tuple[Tensor, Tensor]]:
        transformed = TransformedImages(self.images, self.transform)
        mine = list(self._mine)
        plan = [mine[start : start + self.batch_size] for start in range(0, len(mine), self.batch_size)]
        in_memory = isinstance(self.images, ImageArray)
        few = len(mine) < _FEW_IMAGES or (in_memory and len(mine) < 8 * _FEW_IMAGES)
        processes = worker_count(self.processes, few)
        seeds = torch.Generator()  # otherwise the loader draws a seed from the global generator
        pinned = self.device.type == "cuda"
        yield from DataLoader(
            transformed, batch_sampler=plan, num_workers=processes, pin_memory=pinned, generator=seeds
        )


def worker_count(requested: int, few: bool = False) -> int:
    """Returns the number of worker processes: as requested; with -1 one per core up to 8, or 0 for few images.

    >>> worker_count(3), worker_count(-1, few=True)
    (3, 0)
    """
    if requested < -1:
        raise VitlabError(f"invalid processes={requested}; expected 0 or more, or -1 for one per core")
    if requested >= 0:
        return requested
    return 0 if few else min(os.cpu_count() or 1, 8)


@dataclass(frozen=True)
class TransformedImages(Dataset[tuple[Tensor, int]]):
    """An image set under a transform, as a data set for a torch DataLoader."""

    images: Any
    transform: Callable[[Image.Image], Tensor]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        image, label = self.images[i]
        return self.transform(image), label
