"""Masks against loops, and the model's input under them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitlab
from cases.stress import answers, normalised, pixels, scene_batches, scenes_model
from vitlab.stress_tests.occlusion import centre_mask, drop_mask


def test_the_centre_of_the_paper() -> None:
    mask = centre_mask((224, 224), 0.5)
    assert mask.sum() == 112 * 112 and mask[56:168, 56:168].all()


@settings(deadline=None, max_examples=20)
@given(
    grid=st.integers(1, 9),
    ratio=st.floats(0, 1),
    size=st.tuples(st.integers(9, 20), st.integers(9, 20)),
    seed=st.integers(0, 99),
)
def test_dropped_cells(grid, ratio, size, seed) -> None:
    draws = torch.rand(2, grid, grid, generator=torch.Generator().manual_seed(seed))
    mask = drop_mask(draws, ratio, size)
    count = round(ratio * grid * grid)
    for b in range(2):
        lowest = set(draws[b].flatten().argsort()[:count].tolist())
        for y in range(size[0]):
            for x in range(size[1]):
                cell = y * grid // size[0] * grid + x * grid // size[1]
                assert bool(mask[b, y, x]) == (cell in lowest)


def test_grids_may_be_rectangular_and_ties_keep_their_order() -> None:
    mask = drop_mask(torch.zeros(1, 2, 3), 0.5, (4, 6))
    assert mask[0, :2].all() and not mask[0, 2:].any()  # round(0.5 · 6) = 3: the first row of cells
    many = drop_mask(torch.zeros(1, 40, 40), 0.25, (40, 40))
    assert many[0, :10].all() and not many[0, 10:].any()


def test_patches_are_the_models_own_by_default() -> None:
    class Mean(torch.nn.Module):
        def forward(self, x):
            return x.mean((2, 3))

    def grid(model, **settings):
        return tuple(vitlab.stress("occlusion", model, scene_batches(model), ratios=0.5, **settings).settings["grid"])

    model = scenes_model()
    own = tuple(vitlab.describe(model).blocks[0].seams[0].layout.grid)
    assert grid(model) == own != (14, 14) and grid(model, grid=(2, 4)) == (2, 4) and grid(model, grid=14) == (14, 14)
    assert grid(Mean()) == (14, 14)
    batches = scene_batches(model)
    drops = [
        vitlab.stress("occlusion", model, batches, **settings).values["drop"] for settings in ({}, {"grid": own[0]})
    ]
    assert (drops[0] == drops[1]).all()


def test_a_larger_ratio_contains_the_cells_of_a_smaller_one() -> None:
    draws = torch.rand(3, 5, 5)
    small, large = drop_mask(draws, 0.2, (10, 10)), drop_mask(draws, 0.6, (10, 10))
    assert (small <= large).all() and small.sum() == 3 * 5 * 4 and large.sum() == 3 * 15 * 4


@pytest.mark.parametrize("fill", ["zero", "black"])
def test_what_fills_the_centre(fill) -> None:
    model, images = scenes_model(), pixels(12)
    labels = answers(model, images)
    hidden = normalised(images)
    hidden[:, :, 8:24, 8:24] = 0 if fill == "zero" else normalised(torch.zeros(1, 3, 1, 1))
    with torch.no_grad():
        expected = (model(hidden).argmax(1) == labels).double().mean().item()
    found = vitlab.stress("occlusion", model, scene_batches(model), fill=fill, ratios=(0, 1)).values
    assert found["accuracy"][0] == pytest.approx(expected) and expected < 1
    assert found["accuracy"][1] == found["clean_accuracy"] == 1, "nothing dropped"
    blank = normalised(torch.zeros(1, 3, 32, 32)) if fill == "black" else torch.zeros(1, 3, 32, 32)
    with torch.no_grad():
        assert found["accuracy"][2] == pytest.approx((labels == model(blank).argmax(1)).double().mean().item())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fill": "white"}, "'zero' or 'black'"),
        ({"ratios": (1.2,)}, "from 0 to 1"),
        ({"grid": 0}, "grid=0"),
        ({"ratios": (0.5, 0.5)}, "distinct such values"),
        ({"centres": "half"}, "expected a number"),
        ({"grid": 2.5}, "grid=2.5"),
    ],
)
def test_mistakes(settings, message) -> None:
    model = scenes_model()
    with pytest.raises(vitlab.VitlabError, match=message):
        vitlab.stress("occlusion", model, scene_batches(model), **settings)
