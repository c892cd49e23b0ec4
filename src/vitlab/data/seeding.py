"""Seed derivation: random generators that depend only on a key such as (seed, epoch, batch)."""

from __future__ import annotations

import zlib

import numpy as np
import torch

__all__ = ["host_random", "seeded_generator", "step_seed"]


def host_random(purpose: str, seed: int, epoch: int = 0, index: int = 0) -> np.random.Generator:
    """Returns a numpy generator for a key, for the few numbers that are drawn on the host.

    Args:
        purpose: the use of the numbers; different purposes give independent streams.
        seed: of the run, any integer.
        epoch, index: epoch, and index of the batch or chunk in it; not negative.

    >>> host_random("mix", 0, 3).random() == host_random("mix", 0, 3).random() != host_random("mix", 0, 4).random()
    True
    """
    return np.random.default_rng(_sequence(purpose, seed, epoch, index))


def seeded_generator(
    device: torch.device | str, purpose: str, seed: int, epoch: int = 0, index: int = 0
) -> torch.Generator:
    """Returns a torch generator for a key on a device; the arguments are those of `host_random`.

    CPU and CUDA generators give different numbers for the same key: runs are reproducible on the same type of device.

    >>> torch.rand(1, generator=seeded_generator("cpu", "augment", 0)).shape
    torch.Size([1])
    """
    state = int(_sequence(purpose, seed, epoch, index).generate_state(1, np.uint64)[0])
    return torch.Generator(device).manual_seed(state >> 1)


def step_seed(seed: int, step: int, rank: int) -> int:
    """Returns the seed of torch's default generator for one training step (dropout, stochastic depth).

    A linear congruential step per number, so that neighbouring steps and ranks get distant seeds. This differs from
    the other functions and stays as it is: with other seeds, a resumed run would not reproduce the uninterrupted run
    of an earlier version, which `tests/training/test_old_checkpoints.py` checks.

    >>> step_seed(0, 0, 0) != step_seed(0, 1, 0) != step_seed(0, 0, 1)
    True
    """
    value = 0
    for number in (seed, step, rank):
        value = (value * 6364136223846793005 + number + 1442695040888963407) % (1 << 63)
    return value


def _sequence(purpose: str, seed: int, epoch: int, index: int) -> np.random.SeedSequence:
    # The seed, the only part that may take two words, comes last, so that different keys give different sequences.
    return np.random.SeedSequence([zlib.crc32(purpose.encode()), epoch, index, seed % 2**64])
