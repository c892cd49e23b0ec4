"""Training batches of a small data set that is stored and augmented on the device.

Shape legend: N images of the set, K batches of a chunk, B batch, b = B / world batch of a process, C channels, h w
pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Augment
from vitlab.data.augment import Draws, apply_draws, draw_augment, normalise
from vitlab.data.device_copy import per_channel, to_device
from vitlab.data.mixing import Mixes, draw_mixes, mix_images, mix_labels
from vitlab.data.order import epoch_order
from vitlab.data.seeding import seeded_generator

__all__ = ["Resident", "TrainingBatch", "prepare"]

_CHUNK = 16384  # images augmented at once on CUDA: few kernel launches, bounded memory


class TrainingBatch(NamedTuple):
    """The inputs of a training step: images (b, C, h, w), labels (b,), the partners' labels (b,), and λ (b,)."""

    images: Tensor
    labels: Tensor
    partners: Tensor
    weights: Tensor


@dataclass(frozen=True, eq=False)
class Resident:
    """Training batches of a data set on the device.

    All random numbers are a function of (seed, epoch, batch), so that an epoch can start at any batch. On the CPU a
    chunk is one batch; on CUDA several batches are augmented together, and the numbers also depend on `chunk`. Every
    process augments whole batches and keeps rows rank, rank + world, …: together they equal the batch of a single
    process, including mixing partners, but each batch is augmented `world` times.

    Args:
        images: (N, C, h, w) uint8, on the device.
        labels: (N,) int64, on the device.
        mean, std: of the pixels in [0, 1], per channel.
        settings: the augmentation; the training loop applies `patches`: it needs both versions (`patch_augment`).
        batch_size: B, over all processes.
        seed: of the run.
        rank, world: rank of this process and number of processes.
        dtype: of the returned images.
        compiled: whether augmentation uses torch.compile.
        chunk: images augmented at once; None means one batch on the CPU and about 16384 elsewhere.

    >>> images = torch.zeros(10, 3, 8, 8, dtype=torch.uint8)
    >>> data = Resident(images, torch.arange(10), (0.5,) * 3, (0.5,) * 3, Augment(), batch_size=4)
    >>> [tuple(batch.images.shape) for batch in data.epoch(0)], len(data)
    ([(4, 3, 8, 8), (4, 3, 8, 8)], 2)
    >>> [len(labels) for _, labels in data.evaluation()]
    [4, 4, 2]
    """

    images: Tensor
    labels: Tensor
    mean: Sequence[float]
    std: Sequence[float]
    settings: Augment = field(default_factory=Augment)
    batch_size: int = 128
    seed: int = 0
    rank: int = 0
    world: int = 1
    dtype: torch.dtype = torch.float32
    compiled: bool = False
    chunk: int | None = None

    def __post_init__(self) -> None:
        """Validate images, labels and the batch size."""
        if self.images.dtype != torch.uint8 or self.images.dim() != 4 or len(self.images) != len(self.labels):
            raise VitlabError(
                f"got {self.images.dtype} images {tuple(self.images.shape)} and {len(self.labels)} labels;"
                " expected uint8 (N, C, h, w) and N labels"
            )
        if self.batch_size % self.world or not 0 <= self.rank < self.world:
            raise VitlabError(
                f"invalid batch_size={self.batch_size}, rank={self.rank}, world={self.world};"
                " expected a batch size divisible by world, and 0 <= rank < world"
            )

    def __len__(self) -> int:
        """Returns the number of full batches in an epoch."""
        return len(epoch_order(len(self.images), 0, self.seed, self.settings.repeats)) // self.batch_size

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[TrainingBatch]:
        """Yields the batches of an epoch from `start_batch` on; an incomplete last batch is dropped."""
        order = epoch_order(len(self.images), epoch, self.seed, self.settings.repeats)
        batches = len(order) // self.batch_size
        if not batches:
            raise VitlabError(
                f"invalid batch_size={self.batch_size}; an epoch has {len(order)} images; use a smaller batch"
            )
        per_chunk = self._batches_per_chunk(batches)
        # The last chunk is filled up from the start of the order: one shape for all chunks avoids recompilation.
        order = to_device(order[: batches * self.batch_size].repeat(2), self.images.device)
        for chunk in range(start_batch // per_chunk, -(-batches // per_chunk)):
            first = chunk * per_chunk
            prepared = self._chunk(
                order[first * self.batch_size :][: per_chunk * self.batch_size], epoch, chunk, per_chunk
            )
            for k in range(max(start_batch - first, 0), min(per_chunk, batches - first)):
                yield TrainingBatch(*(part[k, self.rank :: self.world] for part in prepared))

    def evaluation(self, batch_size: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields (images, labels) of all images in order, normalised only; a process takes every world-th one."""
        mine = slice(self.rank, None, self.world)
        step = (batch_size or self.batch_size) * self.world
        for start in range(0, len(self.images), step):
            images, labels = self.images[start : start + step][mine], self.labels[start : start + step][mine]
            if len(labels):
                yield normalise(images, *self._constants).to(self.dtype), labels

    def _chunk(self, rows: Tensor, epoch: int, chunk: int, per_chunk: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns K batches, augmented and mixed: images (K, B, C, h, w); labels, partners and weights (K, B)."""
        generator = seeded_generator(self.images.device, "augment", self.seed, epoch, chunk)
        channels, height, width = self.images.shape[1:]
        draws = draw_augment(len(rows), (channels, height, width), self.settings, generator)
        batches = range(chunk * per_chunk, (chunk + 1) * per_chunk)
        mixes = draw_mixes(self.settings, (height, width), self.seed, epoch, batches)
        mixes = Mixes(*(to_device(part, self.images.device) for part in mixes))
        labels = self.labels[rows].view(per_chunk, -1)
        images = self._prepare(self.images[rows], draws, mixes, *self._constants, self.dtype)
        return images, labels, *mix_labels(labels, mixes)

    def _batches_per_chunk(self, batches: int) -> int:
        """Returns K, the number of batches per chunk, for chunks of nearly equal size."""
        size = self.chunk or (self.batch_size if self.images.device.type == "cpu" else _CHUNK)
        most = max(size // self.batch_size, 1)
        return -(-batches // -(-batches // most))

    @cached_property
    def _constants(self) -> tuple[Tensor, Tensor]:
        return per_channel(self.mean, self.images.device), per_channel(self.std, self.images.device)

    @cached_property
    def _prepare(self) -> Callable[..., Tensor]:
        return torch.compile(prepare, fullgraph=True, dynamic=False) if self.compiled else prepare


def prepare(images: Tensor, draws: Draws, mixes: Mixes, mean: Tensor, std: Tensor, dtype: torch.dtype) -> Tensor:
    """Augment and mix a chunk: uint8 (K B, C, h, w) -> (K, B, C, h, w) of `dtype`; compiles as one graph."""
    augmented = apply_draws(images, draws, mean, std).unflatten(0, (len(mixes.weights), -1))
    return mix_images(augmented, mixes).to(dtype)
