import math

import numpy as np
import pytest
import scipy.ndimage
import torch

from vitlab.corruptions.blur import defocus_blur, shuffle, zoom_blur
from vitlab.corruptions.randomness import Randomness

cv2 = pytest.importorskip("cv2")


@pytest.mark.parametrize(
    ("radius", "softness"), [(0.3, 0.4), (1, 0.2), (1.5, 0.1), (3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)]
)
def test_defocus_is_the_dense_kernel_of_opencv(radius, softness):
    axis = np.arange(-8, 9) if radius <= 8 else np.arange(-radius, radius + 1)
    disc = (axis[:, None] ** 2 + axis**2 <= radius**2).astype(np.float32)
    side = 3 if radius <= 8 else 5
    kernel = cv2.GaussianBlur(disc / disc.sum(), (side, side), softness)
    image = torch.rand(1, 1, 40, 57) * 0.9
    expected = cv2.filter2D(image[0, 0].double().numpy(), -1, kernel)
    assert np.abs(defocus_blur(image, radius, softness)[0, 0].numpy() - expected).mean() < 0.3 / 255


@pytest.mark.parametrize(("h", "w", "reach"), [(12, 9, 1), (15, 20, 2), (24, 24, 4), (3, 5, 4), (1, 1, 1)])
def test_shuffle_is_the_loop_that_copies_pixel_by_pixel(h, w, reach):
    random = Randomness.of(2, "glass_blur", 1, [0, 1])
    draws = (random.halves(2, h, w, stream=1) * reach) >> 15
    assert draws.min() >= -reach and draws.max() < reach
    for image in range(2):
        values = np.arange(h * w).reshape(h, w)
        for y in range(h - reach, reach, -1):
            for x in range(w - reach, reach, -1):
                values[y, x] = values[y + draws[image, 1, y, x], x + draws[image, 0, y, x]]
        np.testing.assert_array_equal(shuffle(random, h, w, reach, stream=1)[image].numpy(), values.reshape(-1))


def test_neighbours_are_drawn_evenly():
    steps = (Randomness.of(0, "glass_blur", 1, [0]).halves(60000) * 3) >> 15
    shares = torch.bincount((steps + 3).flatten(), minlength=6) / steps.numel()
    assert (shares - 1 / 6).abs().max() < 0.008


def test_zoom_blur_is_the_mean_of_scipys_enlargements():
    image = torch.rand(1, 1, 40, 33)
    layers = [image[0, 0].numpy()]
    for factor in np.arange(1, 1.31, 0.03):
        h, w = math.ceil(40 / factor), math.ceil(33 / factor)
        top, left = (40 - h) // 2, (33 - w) // 2
        middle = image[0, 0, top : top + h, left : left + w].numpy()
        layers.append(scipy.ndimage.zoom(middle, factor, order=1)[:40, :33])
    np.testing.assert_allclose(zoom_blur(image, 1.31, 0.03)[0, 0].numpy(), np.mean(layers, axis=0), atol=1e-5)
