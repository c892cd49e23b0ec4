"""Shuffled patches against loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitlab
from cases.stress import scene_batches, scenes_model
from vitlab.stress_tests.patch_shuffle import shuffle


@settings(deadline=None, max_examples=15)
@given(grid=st.integers(1, 5), cell=st.tuples(st.integers(1, 3), st.integers(1, 3)), seed=st.integers(0, 99))
def test_patches_are_permuted_by_the_order(grid, cell, seed) -> None:
    p, q = cell
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(2, 3, grid * p, grid * q, generator=generator)
    order = torch.stack([torch.randperm(grid * grid, generator=generator) for _ in range(2)])
    moved = shuffle(images, order)
    for b in range(2):
        for place in range(grid * grid):
            (y, x), (v, u) = divmod(place, grid), divmod(int(order[b, place]), grid)
            here = moved[b, :, y * p : (y + 1) * p, x * q : (x + 1) * q]
            assert here.equal(images[b, :, v * p : (v + 1) * p, u * q : (u + 1) * q])


def test_one_patch_is_the_image_and_many_lower_the_accuracy() -> None:
    model = scenes_model()
    found = vitlab.stress("patch_shuffle", model, scene_batches(model, 20), grids=(1, 8)).values
    assert found["accuracy"][0] == 1 == found["clean_accuracy"] and found["accuracy"][1] < 1
    assert found["drop"][1] == pytest.approx(1 - found["accuracy"][1])


def test_a_model_of_the_mean_colour_is_unaffected() -> None:
    class Mean(torch.nn.Module):
        def forward(self, x):
            return x.double().mean((2, 3)).float()

    model = Mean()
    found = vitlab.stress("patch_shuffle", model, scene_batches(model))
    assert (found.values["accuracy"] == 1).all() and found.axes["grid"] == (2, 4, 8)


def test_a_single_grid_is_accepted() -> None:
    model = scenes_model()
    one, same = (vitlab.stress("patch_shuffle", model, scene_batches(model), grids=grids) for grids in (4, (4,)))
    assert one.axes["grid"] == (4,) and one.values["accuracy"] == same.values["accuracy"]


@pytest.mark.parametrize("grids", [(), (0,), (5,), (2, 2), 2.5, "2"])
def test_mistakes(grids) -> None:
    model = scenes_model()
    with pytest.raises(vitlab.VitlabError, match="grids"):
        vitlab.stress("patch_shuffle", model, scene_batches(model), grids=grids)
