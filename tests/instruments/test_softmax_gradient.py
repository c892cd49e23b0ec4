from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy

import vitlab
from cases.attention import ATTENTION, FAMILY, maps, pictures, sharp
from vitlab.core.pooling import pool
from vitlab.instruments.softmax_gradient import curve, nuclear_norm, plane


def autograd_jacobian(s, scale):
    return torch.autograd.functional.jacobian(lambda s: torch.softmax(scale * s, -1), s)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 7), st.floats(0.1, 3.0), st.integers(0, 99))
def test_nuclear_norm_is_the_sum_of_singular_values_of_the_jacobian(tokens, scale, seed):
    s = 2 * torch.randn(tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    jacobian, a = autograd_jacobian(s, scale), torch.softmax(scale * s, -1)
    assert nuclear_norm(a, scale).item() == pytest.approx(torch.linalg.svdvals(jacobian).sum().item(), abs=1e-10)
    assert nuclear_norm(a, scale).item() <= scale * (1 - 1 / tokens) + 1e-12


def test_plane_of_figure_5():
    x, first, norm = plane(extent=3.0, points=7, scale=0.7)
    for i, x1 in enumerate(x):
        for j, x2 in enumerate(x):
            s = torch.tensor([x1, x2])
            assert first[i, j] == pytest.approx(torch.softmax(0.7 * s, -1)[0].item())
            assert norm[i, j] == pytest.approx(torch.linalg.svdvals(autograd_jacobian(s, 0.7)).sum().item())
    assert np.allclose(norm.diagonal(), norm.max())  # steepest where x1 = x2


@pytest.mark.parametrize("tokens", [2, 5, 197])
def test_the_curve_of_one_sharp_key(tokens):
    entropies, norms = curve(tokens, points=9)
    for p, h, norm in zip(np.linspace(1, 1 / tokens, 9), entropies, norms, strict=True):
        row = np.array([p] + [(1 - p) / (tokens - 1)] * (tokens - 1))
        assert h == pytest.approx(scipy_entropy(row), abs=1e-9)
        assert norm == pytest.approx(1 - (row**2).sum(), abs=1e-12)
    assert (np.diff(norms) > 0).all() and (np.diff(entropies) > 0).all()
    assert norms[-1] == pytest.approx(1 - 1 / tokens) and entropies[-1] == pytest.approx(math.log(tokens))


@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.family)
def test_rows_of_a_model(case):
    model, images = sharp(case), pictures(case)
    found = vitlab.measure("softmax_gradient", model, [images], bins=4).values
    for i, (weights, _, _) in enumerate(maps(model, images).values()):
        rows = weights.transpose(0, 1).flatten(1, 2).numpy()  # (H, rows, M)
        norms, entropies = 1 - (rows**2).sum(-1), scipy_entropy(rows, axis=-1)
        heads = len(rows)
        assert found["mean"][i, :heads] == pytest.approx(norms.mean(1), rel=1e-4)
        for head in range(heads):
            expected = np.corrcoef(norms[head], entropies[head])[0, 1]
            assert found["correlation"][i, head] == pytest.approx(expected, abs=2e-3)
        where = np.clip((entropies / math.log(rows.shape[-1]) * 4).astype(int), 0, 3)
        for bin in range(4):
            chosen = norms[where == bin]
            if len(chosen) > 20:  # an entropy on the edge may fall on either side
                assert found["by_entropy"][i, bin] == pytest.approx(chosen.mean(), rel=2e-2)
        assert found["bound"][i] == pytest.approx(1 - 1 / rows.shape[-1])


@pytest.mark.parametrize("family", ["vit", "swin"])  # swin has layers with different numbers of heads
def test_parts_of_the_images_give_the_values_of_all_images(family):
    """The correlation over all rows is not the mean of the correlations of the parts."""
    model, images = sharp(FAMILY[family]), pictures(FAMILY[family], 5)
    whole = vitlab.measure("softmax_gradient", model, [images])
    parts = [vitlab.measure("softmax_gradient", model, [part]) for part in images.split((1, 3, 1))]
    pooled = pool(parts)
    for name, value in whole.values.items():
        np.testing.assert_allclose(pooled.values[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    means = np.average([part.values["correlation"] for part in parts], axis=0, weights=[1, 3, 1])
    assert np.nanmax(np.abs(means - whole.values["correlation"])) > 1e-4


def test_the_scale_is_the_models():
    case = FAMILY["vit"]
    found = vitlab.measure("softmax_gradient", sharp(case), [pictures(case)]).values
    assert found["scale"] == pytest.approx(8**-0.5)  # 24 channels, 3 heads


def test_bins():
    with pytest.raises(vitlab.VitlabError, match="bins=0"):
        vitlab.measure("softmax_gradient", sharp(FAMILY["vit"]), [pictures(FAMILY["vit"])], bins=0)
