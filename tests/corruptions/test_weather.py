import colorsys

import numpy as np
import pytest
import torch

from vitlab.corruptions.randomness import Randomness
from vitlab.corruptions.spatter_relief import equalise, relief, rim_distance, rims
from vitlab.corruptions.textures import _KIND, _PHOTOGRAPHS, ice, plasma
from vitlab.corruptions.weather import brightness, fog, frost, snow, spatter

cv2 = pytest.importorskip("cv2")


def drops(sigma=2.0, size=96):
    noise = np.random.default_rng(0).normal(0.65, 0.3, (size, size)).astype(np.float32)
    layer = cv2.GaussianBlur(noise, (0, 0), sigma)
    return np.where(layer < 0.68, 0, layer)


def test_brightness_is_a_step_in_hsv():
    pixels = torch.rand(1, 3, 5, 7)
    actual = brightness(pixels, 0.3)
    for y in range(5):
        for x in range(7):
            h, s, v = colorsys.rgb_to_hsv(*pixels[0, :, y, x].tolist())
            expected = colorsys.hsv_to_rgb(h, s, min(v + 0.3, 1))
            assert actual[0, :, y, x].tolist() == pytest.approx(expected, abs=1e-6)


def test_fog_mixes_with_its_plasma():
    images, random = torch.rand(2, 3, 20, 30), Randomness.of(0, "fog", 1, [0, 1])
    largest = images.amax((1, 2, 3), keepdim=True)
    expected = (images + 1.5 * plasma(random, 32, 2.0)[:, None, :20, :30]) * largest / (largest + 1.5)
    torch.testing.assert_close(fog(images, random, 1.5, 2.0), expected.clamp(0, 1))


def test_plasma_is_as_rough_as_the_reference():
    corruptions = pytest.importorskip("imagecorruptions.corruptions")
    np.random.seed(0)
    theirs = np.stack([corruptions.plasma_fractal(32, 1.7) for _ in range(2000)])
    ours = plasma(Randomness.of(0, "fog", 1, range(2000)), 32, 1.7).numpy()
    for statistic in (np.mean, np.std, lambda maps: np.abs(np.diff(maps, axis=2)).mean()):
        assert statistic(ours) == pytest.approx(statistic(theirs), rel=0.03)


def test_snow_and_frost_do_not_darken_as_parametrised():
    images = torch.rand(2, 3, 40, 40)
    assert (snow(images, Randomness.of(0, "snow", 1, [0, 1]), 0.1, 0.3, 3, 0.5, 10, 4, 0.8) >= images - 1e-6).all()
    assert (frost(images, Randomness.of(0, "frost", 1, [0, 1]), 1.0, 0.4) >= images - 1e-6).all()


def test_ice_has_the_moments_of_the_photographs():
    random = Randomness.of(0, "frost", 1, range(300))
    textures = ice(random, 32, 48)
    photographs = torch.tensor(_PHOTOGRAPHS)[random.uniform(1, stream=_KIND, high=6)[:, 0].long()]
    torch.testing.assert_close(textures.mean((0, 2, 3)), photographs[:, :3].mean(0), rtol=0.03, atol=0)
    # Whole textures differ by 0.28 of the deviation, and a few values are cut at white.
    expected = photographs[:, 3:].square().mean().item() * (1 - 0.28**2)
    assert textures.var((2, 3)).mean().item() == pytest.approx(expected, rel=0.05)


def test_rims_are_those_of_canny():
    layer = (drops() * 255).astype(np.uint8)
    ours = rims(torch.from_numpy(layer).float()[None, None])[0, 0].bool().numpy()
    theirs = cv2.Canny(layer, 50, 150) > 0
    assert theirs.any() and (ours ^ theirs).sum() < 0.03 * theirs.sum()


def test_rim_distance_is_the_distance_to_the_nearest_edge():
    edges = (torch.rand(2, 1, 23, 41) < 0.004).float()
    edges[0] = 0
    edges[0, 0, 3, 5] = 1
    actual = rim_distance(edges)
    y, x = torch.meshgrid(torch.arange(23.0), torch.arange(41.0), indexing="ij")
    for image in range(2):
        apart = [torch.hypot(y - a, x - b) for a, b in edges[image, 0].nonzero().tolist()]
        expected = torch.stack([*apart, torch.full((23, 41), 20.0)]).amin(0)
        torch.testing.assert_close(actual[image, 0], expected)


def test_equalise_is_opencvs():
    levels = np.random.default_rng(0).integers(3, 21, (2, 30, 31)).astype(np.uint8)
    levels[1] = 7  # one level only: left alone
    actual = equalise(torch.from_numpy(levels).float()[:, None])[:, 0].numpy()
    np.testing.assert_array_equal(actual, np.stack([cv2.equalizeHist(image) for image in levels]))


def test_relief_is_the_chain_of_opencv_calls():
    layer = drops()
    thickness = (layer * 255).astype(np.uint8)
    far = cv2.distanceTransform(255 - cv2.Canny(thickness, 50, 150), cv2.DIST_L2, 5).clip(max=20)
    slope = cv2.equalizeHist(cv2.blur(far, (3, 3)).astype(np.uint8))
    slope = cv2.filter2D(slope, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
    light = thickness * cv2.blur(slope, (3, 3)).astype(np.float32)
    actual = relief(torch.from_numpy(layer)[None, None])[0, 0].numpy()
    assert np.corrcoef(actual.ravel(), light.ravel())[0, 1] > 0.97
    assert actual.mean() == pytest.approx((light / light.max()).mean(), rel=0.03)


def test_spatter_of_mud_is_brown_and_of_water_bright():
    grey = torch.full((1, 3, 64, 64), 0.5)
    mud = spatter(grey, Randomness.of(0, "spatter", 5, [0]), 0.67, 0.4, 1, 0.65, 1.5, 1)
    water = spatter(grey, Randomness.of(0, "spatter", 1, [0]), 0.65, 0.3, 2, 0.68, 0.6, 0)
    assert mud.amin((0, 2, 3)).tolist() == pytest.approx([63 / 255, 42 / 255, 20 / 255], abs=0.01)
    assert (water >= grey).all() and water.max() > 0.8
