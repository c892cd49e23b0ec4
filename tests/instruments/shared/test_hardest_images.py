"""The images with the highest loss, whatever the batches, against a sort of all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vitlab.core.batches import Batches
from vitlab.instruments.shared.hardest_images import HardestImages


@pytest.mark.parametrize("size", [1, 3, 10])
def test_batches_do_not_matter(size: int) -> None:
    losses = np.random.default_rng(0).permutation(10).astype(float)
    images = torch.arange(10.0).view(10, 1, 1, 1).expand(10, 3, 4, 6) / 10
    targets = torch.arange(10) % 3
    source = Batches([], mean=(0.0,) * 3, std=(1.0,) * 3)
    collected = HardestImages(source, ["a", "b"], kept=4)
    for start in range(0, 10, size):
        part = slice(start, start + size)
        collected.add(images[part], losses[part], targets[part])
    found, expected = collected.values(), np.argsort(-losses)[:4]
    assert found["example_index"].tolist() == expected.tolist()
    assert found["example_label"].tolist() == [["a", "b", "class 2"][i % 3] for i in expected]
    assert found["example"].shape == (4, 4, 6, 3)
    assert found["example"][:, 0, 0, 0].tolist() == [round(25.5 * i) for i in expected]
