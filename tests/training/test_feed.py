"""Epochs of a fixed number of batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pytest
import torch
from torch import Tensor

from vitlab.training.feed import FixedEpoch


@dataclass(frozen=True)
class Numbers:
    """Batches that hold their pass and their number."""

    count: int

    def __len__(self) -> int:
        return self.count

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[tuple[Tensor, ...]]:
        for batch in range(start_batch, self.count):
            yield (torch.tensor([epoch, batch]),)


@pytest.mark.parametrize("steps", [1, 3, 5, 7, 12])
def test_epochs_continue_through_the_passes(steps: int) -> None:
    feed = FixedEpoch(Numbers(5), steps)
    assert len(feed) == steps
    epochs = [[tuple(batch[0].tolist()) for batch in feed.epoch(epoch)] for epoch in range(4)]
    assert [len(epoch) for epoch in epochs] == [steps] * 4
    passes = [(number, batch) for number in range(4 * steps) for batch in range(5)]
    assert list(chain(*epochs)) == passes[: 4 * steps]
    for start in range(steps):
        assert [tuple(batch[0].tolist()) for batch in feed.epoch(2, start)] == epochs[2][start:]


def test_a_feed_without_batches_stays_empty() -> None:
    assert len(FixedEpoch(Numbers(0), 3)) == 0
