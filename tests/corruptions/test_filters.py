import math

import numpy as np
import pytest
import scipy.ndimage
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.corruptions.filters import (
    _depthwise,
    _shift_by_runs,
    _shift_by_slices,
    enlarge,
    extend,
    smooth,
    streak,
    zoom_in,
)

SCIPY = {"nearest": "nearest", "reflect": "reflect", "mirror": "mirror"}
NUMPY = {"nearest": "edge", "reflect": "symmetric", "mirror": "reflect"}


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 20), st.sampled_from(sorted(NUMPY)))
def test_extend_is_numpy_pad(h, w, amount, border):
    images = torch.rand(2, 1, h, w)
    expected = np.pad(images.numpy(), ((0, 0), (0, 0), (amount, amount), (2, 2)), mode=NUMPY[border])
    np.testing.assert_array_equal(extend(images, amount, 2, border).numpy(), expected)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 80), st.integers(1, 80), st.sampled_from([0.3, 1.0, 2.7, 6.0]), st.sampled_from(sorted(SCIPY)))
def test_smooth_is_scipys_gaussian(h, w, sigma, border):
    images = torch.rand(2, 3, h, w)
    for truncate in (3.0, 4.0):
        expected = scipy.ndimage.gaussian_filter(
            images.double().numpy(), (0, 0, sigma, sigma / 2), mode=SCIPY[border], truncate=truncate
        )
        actual = smooth(images, (sigma, sigma / 2), border, truncate)
        np.testing.assert_allclose(actual.numpy(), expected, atol=2e-6)


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.3, 2.5, 4.5])
def test_zoom_is_scipys(factor):
    images = torch.rand(1, 2, 45, 32)
    h, w = (math.ceil(side / factor) for side in (45, 32))
    top, left = (45 - h) // 2, (32 - w) // 2
    expected = scipy.ndimage.zoom(images[..., top : top + h, left : left + w].numpy(), (1, 1, factor, factor), order=1)
    np.testing.assert_allclose(zoom_in(images, factor).numpy(), expected, atol=1e-5)


def test_enlarge_keeps_every_corner():
    images = torch.rand(2, 3, 4, 5)
    large = enlarge(images, (9, 17))
    assert large.shape == (2, 3, 9, 17)
    torch.testing.assert_close(large[..., [0, -1], :][..., [0, -1]], images[..., [0, -1], :][..., [0, -1]])


@pytest.mark.parametrize("degrees", [-135.0, -60.0, -10.0, 0.0, 33.0, 45.0])
def test_streak_is_the_loop_over_pixels(degrees):
    images, radius, sigma = torch.rand(1, 1, 9, 12), 3, 2.0
    angle = torch.tensor([math.radians(degrees)])
    weights = [math.exp(-0.5 * (i / sigma) ** 2) for i in range(2 * radius + 1)]
    expected = torch.zeros(9, 12)
    for i, weight in enumerate(weights):
        dy, dx = math.ceil(i * math.sin(angle) - 0.5), math.ceil(i * math.cos(angle) - 0.5)
        for y in range(9):
            for x in range(12):
                expected[y, x] += weight / sum(weights) * images[0, 0, min(max(y + dy, 0), 8), min(max(x + dx, 0), 11)]
    torch.testing.assert_close(streak(images, angle, radius, sigma)[0, 0], expected)


def test_both_implementations_of_shift_agree_bit_for_bit():
    padded, weights = torch.rand(3, 2, 15, 18), [0.5, 0.25, 0.125, 0.0625, 0.0625]
    top, left = torch.randint(0, 9, (3, 5)), torch.randint(0, 9, (3, 5))
    assert _shift_by_runs(padded, top, left, weights).equal(_shift_by_slices(padded, top, left, weights))


def test_the_convolution_of_gpus_is_the_product_of_cpus():
    images, weights = torch.rand(2, 3, 21, 34), (0.1, 0.2, 0.4, 0.2, 0.1)
    for axis in (-2, -1):
        expected = scipy.ndimage.correlate1d(images.numpy(), weights, axis=axis, mode="mirror")
        np.testing.assert_allclose(_depthwise(images, weights, axis, "mirror").numpy(), expected, atol=1e-6)
