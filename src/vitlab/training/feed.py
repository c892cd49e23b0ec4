"""Sources of training batches: the protocol, and epochs of a fixed number of batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from vitlab.training.step import Batch


class Feed(Protocol):
    """A source of batches that yields the same batches for the same epoch, starting at any batch."""

    def __len__(self) -> int:
        """Number of batches per epoch."""
        ...

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[Batch]:
        """Iterate over the batches of an epoch, starting at `start_batch`."""
        ...


@dataclass(frozen=True)
class FixedEpoch:
    """Epochs of `steps` batches that continue through the passes of another feed.

    Batch b of epoch e is batch e · steps + b of the sequence of all passes: every image is used equally often.

    Args:
        feed: the feed; its epochs are the passes.
        steps: number of batches per epoch.
    """

    feed: Feed
    steps: int

    def __len__(self) -> int:
        return self.steps if len(self.feed) else 0

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[Batch]:
        """Iterate over the batches of an epoch, starting at `start_batch`."""
        position, stop = epoch * self.steps + start_batch, (epoch + 1) * self.steps
        while position < stop:
            number, first = divmod(position, len(self.feed))
            count = min(stop - position, len(self.feed) - first)
            yield from islice(self.feed.epoch(number, first), count)
            position += count
