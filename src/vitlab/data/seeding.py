"""Random numbers by name: a key such as (seed, epoch, batch) names a stream, whatever ran before."""

from __future__ import annotations

import zlib

import numpy as np
import torch

__all__ = ["host_random", "seeded_generator"]


def host_random(purpose: str, seed: int, epoch: int = 0, index: int = 0) -> np.random.Generator:
    """numpy's generator at the start of a stream, for the few numbers that are drawn on the host.

    Args:
        purpose: what the numbers are for; two purposes never share a stream.
        seed: of the run, any integer.
        epoch, index: which epoch, and which batch or chunk of it; not negative.

    >>> host_random("mix", 0, 3).random() == host_random("mix", 0, 3).random() != host_random("mix", 0, 4).random()
    True
    """
    return np.random.default_rng(_sequence(purpose, seed, epoch, index))


def seeded_generator(
    device: torch.device | str, purpose: str, seed: int, epoch: int = 0, index: int = 0
) -> torch.Generator:
    """torch's generator on a device at the start of a stream; the arguments are those of `host_random`.

    The CPU and CUDA draw different numbers from one key: runs repeat on the same kind of device.

    >>> torch.rand(1, generator=seeded_generator("cpu", "augment", 0)).shape
    torch.Size([1])
    """
    state = int(_sequence(purpose, seed, epoch, index).generate_state(1, np.uint64)[0])
    return torch.Generator(device).manual_seed(state >> 1)


def _sequence(purpose: str, seed: int, epoch: int, index: int) -> np.random.SeedSequence:
    # The seed, the only part that may fill two words, stands last: keys of different parts cannot run into each other.
    return np.random.SeedSequence([zlib.crc32(purpose.encode()), epoch, index, seed % 2**64])
