"""Epoch orders against timm's sampler for repeated augmentation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.data.distributed_sampler import RepeatAugSampler

from vitlab.core.errors import VitlabError
from vitlab.data.order import epoch_order


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("count", [256, 700, 1025])
def test_repeats_equal_those_of_timm(count: int, world: int) -> None:
    # The permutations differ; relabelling timm's by first appearance leaves the pattern of repeats, which must agree.
    for rank in range(world):
        sampler = RepeatAugSampler(range(count), num_replicas=world, rank=rank, num_repeats=3)
        assert pattern(epoch_order(count, 0, 0, 3, rank, world).tolist()) == pattern(list(sampler))


def pattern(indices: list[int]) -> list[int]:
    names: dict[int, int] = {}
    return [names.setdefault(index, len(names)) for index in indices]


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 600), st.integers(1, 4), st.integers(1, 5), st.integers(0, 9))
def test_processes_share_the_order(count: int, repeats: int, world: int, epoch: int) -> None:
    whole = epoch_order(count, epoch, 1, repeats)
    parts = [epoch_order(count, epoch, 1, repeats, rank, world) for rank in range(world)]
    together = torch.stack(parts, 1).flatten()
    assert torch.equal(together, whole[: len(together)]) and len(whole) - len(together) < world
    assert whole.bincount().max() <= repeats and whole.max() < count


def test_epochs_and_seeds_differ_and_repeat() -> None:
    assert torch.equal(epoch_order(50, 3, 7), epoch_order(50, 3, 7))
    assert not torch.equal(epoch_order(50, 3, 7), epoch_order(50, 4, 7))
    assert not torch.equal(epoch_order(50, 3, 7), epoch_order(50, 3, -8))
    assert torch.equal(epoch_order(50, 3, 7).sort().values, torch.arange(50))


def test_invalid_ranks_raise() -> None:
    with pytest.raises(VitlabError, match="rank=2, world=2"):
        epoch_order(10, 0, 0, rank=2, world=2)
