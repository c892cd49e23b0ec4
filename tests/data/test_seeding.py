"""Random streams by key: equal keys give equal numbers, and every part of the key changes them."""

from __future__ import annotations

import itertools

import torch

from vitlab.data.seeding import host_random, seeded_generator


def test_seeds_depend_on_every_part_of_the_key() -> None:
    keys = list(itertools.product(("mix", "order"), (0, 1, -1, 2**40), (0, 1), (0, 1)))
    host = {host_random(*key).integers(2**62) for key in keys}
    device = {torch.rand(1, generator=seeded_generator("cpu", *key), dtype=torch.float64).item() for key in keys}
    assert len(host) == len(device) == len(keys)
