"""The first images are the same for any batches."""

from __future__ import annotations

import pytest
import torch

from vitlab.core.batches import Batches
from vitlab.instruments.shared.example_images import ExampleImages


@pytest.mark.parametrize("size", [1, 3, 10])
def test_batches_do_not_matter(size: int) -> None:
    images = torch.arange(10.0).view(10, 1, 1, 1).expand(10, 3, 4, 6) / 10
    targets = torch.arange(10) % 3
    source = Batches([], mean=(0.0,) * 3, std=(1.0,) * 3)
    collected = ExampleImages(source, ["a", "b"], kept=4)
    for start in range(0, 10, size):
        part = slice(start, start + size)
        collected.add(images[part], targets[part])
    found = collected.values()
    assert found["example_index"].tolist() == [0, 1, 2, 3]
    assert found["example_label"].tolist() == ["a", "b", "class 2", "a"]
    assert found["example"].shape == (4, 4, 6, 3)
    assert found["example"][:, 0, 0, 0].tolist() == [round(25.5 * i) for i in range(4)]
