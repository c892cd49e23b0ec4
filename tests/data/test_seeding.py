"""Streams by name: equal keys, equal numbers; any part of the key tells streams apart."""

from __future__ import annotations

import itertools

import torch

from vitlab.data.seeding import host_random, seeded_generator


def test_every_part_of_the_key_counts() -> None:
    keys = list(itertools.product(("mix", "order"), (0, 1, -1, 2**40), (0, 1), (0, 1)))
    host = {host_random(*key).integers(2**62) for key in keys}
    device = {torch.rand(1, generator=seeded_generator("cpu", *key), dtype=torch.float64).item() for key in keys}
    assert len(host) == len(device) == len(keys)
