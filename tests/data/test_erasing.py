"""Random erasing: shares, areas and noise, by the formula and beside timm's."""

from __future__ import annotations

import random

import pytest
import torch
from timm.data.random_erasing import RandomErasing

from vitlab.data.erasing import draw_erasing, erase


def erased_areas(count: int, probability: float) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = draw_erasing(count, (3, 32, 32), probability, torch.Generator().manual_seed(0))
    erased = erase(torch.full((count, 3, 32, 32), 99.0), drawn)
    return erased, (erased[:, 0] != 99).float().mean((1, 2))


@pytest.mark.parametrize("probability", [0.25, 1.0])
def test_share_and_area(probability: float) -> None:
    _, areas = erased_areas(4000, probability)
    assert (areas > 0).float().mean().item() == pytest.approx(probability, abs=0.002)
    random.seed(0)
    theirs = RandomErasing(probability=1, mode="pixel", device="cpu")(torch.full((1500, 3, 32, 32), 99.0))
    expected = (theirs[:, 0] != 99).float().mean((1, 2))
    assert areas[areas > 0].mean().item() == pytest.approx(expected.mean().item(), abs=0.01)
    assert areas[areas > 0].std().item() == pytest.approx(expected.std().item(), abs=0.01)


def test_one_rectangle_is_replaced_by_normal_noise() -> None:
    erased, areas = erased_areas(200, 0.5)
    noise = []
    for image in erased[areas > 0]:
        hit = image[0] != 99
        rows, columns = hit.any(1), hit.any(0)
        assert torch.equal(hit, rows[:, None] & columns[None])
        assert rows.int().diff().abs().sum() <= 2 and columns.int().diff().abs().sum() <= 2
        noise.append(image[:, hit].flatten())
    values = torch.cat(noise)
    assert abs(values.mean().item()) < 0.03 and values.std().item() == pytest.approx(1, abs=0.03)
    assert (erased[areas == 0] == 99).all()
