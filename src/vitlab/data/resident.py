"""A small data set that lives on the device, and the batches of an epoch, augmented there.

Shape legend: N images of the set, K batches of a chunk, B batch, b = B / world share of a process, C channels, h w
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

_CHUNK = 16384  # images augmented at once on CUDA: few launches, and memory that does not grow with the set


class TrainingBatch(NamedTuple):
    """What a step eats: images (b, C, h, w), labels (b,), the partners' labels (b,), and λ (b,) of the own labels."""

    images: Tensor
    labels: Tensor
    partners: Tensor
    weights: Tensor


@dataclass(frozen=True, eq=False)
class Resident:
    """Training batches of a data set on the device.

    Everything is a function of (seed, epoch, batch): an epoch can be entered at any batch, whatever ran before. On the
    CPU a chunk is one batch; on CUDA several batches are augmented together, and the numbers also depend on `chunk`.
    Every process augments whole batches and keeps its share, rows rank, rank + world, …: together they hold exactly the
    batch of one process, mixing partners included, at the price of augmenting a batch `world` times.

    Args:
        images: (N, C, h, w) uint8, on the device.
        labels: (N,) int64, on the device.
        mean, std: of the pixels in [0, 1], by channel.
        settings: the augmentation; `patches` is left to the loop, which needs both versions (see `patch_augment`).
        batch_size: B, the global one.
        seed: of the run.
        rank, world: which process of how many.
        dtype: of the images that come out.
        compiled: whether the chain goes through torch.compile.
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
        """Refuse what cannot work."""
        if self.images.dtype != torch.uint8 or self.images.dim() != 4 or len(self.images) != len(self.labels):
            raise VitlabError(
                f"got {self.images.dtype} images {tuple(self.images.shape)} and {len(self.labels)} labels;"
                " expected uint8 (N, C, h, w) and N labels"
            )
        if self.batch_size % self.world or not 0 <= self.rank < self.world:
            raise VitlabError(
                f"batch_size={self.batch_size}, rank={self.rank}, world={self.world}:"
                " the batch must divide among the processes, and 0 <= rank < world"
            )

    def __len__(self) -> int:
        """Full batches of an epoch."""
        return len(epoch_order(len(self.images), 0, self.seed, self.settings.repeats)) // self.batch_size

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[TrainingBatch]:
        """The batches of an epoch from `start_batch` on; the last, short one is dropped."""
        order = epoch_order(len(self.images), epoch, self.seed, self.settings.repeats)
        batches = len(order) // self.batch_size
        if not batches:
            raise VitlabError(
                f"batch_size={self.batch_size}, but an epoch has {len(order)} images; take a smaller batch"
            )
        together = self._together(batches)
        # The last chunk runs into the start of the order: one shape for all, so that nothing is compiled twice.
        order = to_device(order[: batches * self.batch_size].repeat(2), self.images.device)
        for chunk in range(start_batch // together, -(-batches // together)):
            first = chunk * together
            prepared = self._chunk(
                order[first * self.batch_size :][: together * self.batch_size], epoch, chunk, together
            )
            for k in range(max(start_batch - first, 0), min(together, batches - first)):
                yield TrainingBatch(*(part[k, self.rank :: self.world] for part in prepared))

    def evaluation(self, batch_size: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """All images once and in order, normalised only: (images, labels); a process takes every world-th one."""
        mine = slice(self.rank, None, self.world)
        step = (batch_size or self.batch_size) * self.world
        for start in range(0, len(self.images), step):
            images, labels = self.images[start : start + step][mine], self.labels[start : start + step][mine]
            if len(labels):
                yield normalise(images, *self._constants).to(self.dtype), labels

    def _chunk(self, rows: Tensor, epoch: int, chunk: int, together: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """K batches, augmented and mixed: images (K, B, C, h, w); labels, partners and weights (K, B)."""
        generator = seeded_generator(self.images.device, "augment", self.seed, epoch, chunk)
        channels, height, width = self.images.shape[1:]
        draws = draw_augment(len(rows), (channels, height, width), self.settings, generator)
        batches = range(chunk * together, (chunk + 1) * together)
        mixes = draw_mixes(self.settings, (height, width), self.seed, epoch, batches)
        mixes = Mixes(*(to_device(part, self.images.device) for part in mixes))
        labels = self.labels[rows].view(together, -1)
        images = self._prepare(self.images[rows], draws, mixes, *self._constants, self.dtype)
        return images, labels, *mix_labels(labels, mixes)

    def _together(self, batches: int) -> int:
        """K: how many batches make a chunk, chunks as even as possible."""
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
    """A chunk from pixels to what the model eats: uint8 (K B, C, h, w) -> (K, B, C, h, w) of `dtype`; one graph."""
    augmented = apply_draws(images, draws, mean, std).unflatten(0, (len(mixes.weights), -1))
    return mix_images(augmented, mixes).to(dtype)
