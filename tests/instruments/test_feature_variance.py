from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitlab
from cases.features import FAMILY, FEATURES, images, streams
from vitlab.instruments import measure_together
from vitlab.instruments.feature_variance import spatial_variance


@pytest.mark.parametrize("case", FEATURES, ids=lambda case: case.family)
def test_against_numpy(case):
    model, pictures = case.model(), images(case, 3)
    found = vitlab.measure("feature_variance", model, [pictures[:2], pictures[2:]])
    maps = [map.numpy() for map in streams(model, pictures).values() if map.shape[-2] * map.shape[-1] > 1]
    expected = [np.mean([np.var(map[b, c], ddof=1) for b in range(3) for c in range(map.shape[1])]) for map in maps]
    assert found.values["variance"] == pytest.approx(np.array(expected), rel=1e-4)


@settings(deadline=None, max_examples=20)
@given(points=st.integers(2, 30), offset=st.floats(-1e3, 1e3), seed=st.integers(0, 99))
def test_a_large_mean_does_not_reduce_accuracy(points, offset, seed):
    maps = torch.randn(2, points, 3, generator=torch.Generator().manual_seed(seed))
    expected = maps.double().var(1).mean()
    assert spatial_variance(maps + offset) == pytest.approx(float(expected), rel=2e-2, abs=1e-6)


def test_maps_of_one_point_are_omitted():
    case = FAMILY["resnet"]
    model = case.model()
    found = vitlab.measure("feature_variance", model, [images(case)])
    assert (found.values["grid"].prod(1) > 1).all()
    with pytest.raises(vitlab.VitlabError, match="larger images"):
        vitlab.measure("feature_variance", model, [torch.randn(2, 3, 4, 4)])


def test_one_pass_with_the_fourier_analysis():
    case = FAMILY["swin"]
    model, pictures = case.model(), images(case)
    both = measure_together(["feature_fourier", "feature_variance"], model, [pictures])
    for name, found in both.items():
        alone = vitlab.measure(name, model, [pictures])
        assert found.axes == alone.axes and found.dims == alone.dims
        for key, value in found.values.items():
            np.testing.assert_array_equal(value, alone.values[key])
