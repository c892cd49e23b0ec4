import colorsys
import io

import numpy as np
import pytest
import scipy.ndimage
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitlab.corruptions import corrupt
from vitlab.corruptions.colour import luma, saturate
from vitlab.corruptions.digital import _affine, _sample, contrast, jpeg_compression, pixelate
from vitlab.corruptions.jpeg import real_codec, tensor_codec
from vitlab.corruptions.randomness import Randomness
from vitlab.data.scenes import draw_scenes

cv2 = pytest.importorskip("cv2")


def test_contrast_shrinks_towards_the_mean_of_each_channel():
    images = torch.rand(2, 3, 9, 11)
    small = contrast(images, 0.1)
    torch.testing.assert_close(small.mean((2, 3)), images.mean((2, 3)))
    torch.testing.assert_close(small.std((2, 3)), images.std((2, 3)) * 0.1)


@pytest.mark.parametrize(("factor", "shift"), [(0.3, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2)])
def test_saturate_is_a_step_in_hsv(factor, shift):
    pixels = torch.rand(1, 3, 4, 6)
    pixels[..., 0] = 0.5  # grey
    pixels[..., 1] = 0.0  # black
    actual = saturate(pixels, factor, shift)
    for y in range(4):
        for x in range(6):
            h, s, v = colorsys.rgb_to_hsv(*pixels[0, :, y, x].tolist())
            expected = colorsys.hsv_to_rgb(h, min(s * factor + shift, 1), v)
            assert actual[0, :, y, x].tolist() == pytest.approx(expected, abs=2e-6)


def test_luma_is_opencvs():
    image = torch.rand(1, 3, 4, 5)
    expected = cv2.cvtColor(image[0].permute(1, 2, 0).contiguous().numpy(), cv2.COLOR_RGB2GRAY)
    np.testing.assert_allclose(luma(image)[0, 0].numpy(), expected, atol=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 70), st.integers(1, 70), st.sampled_from([0.95, 0.6, 0.5, 0.4, 0.3, 0.25]))
def test_pixelate_is_pils_boxes(h, w, scale):
    levels = np.random.default_rng(h * 100 + w).integers(0, 256, (h, w)).astype(np.uint8)
    small = Image.fromarray(levels).resize((max(1, int(w * scale)), max(1, int(h * scale))), Image.BOX)
    expected = np.asarray(small.resize((w, h), Image.NEAREST), dtype=np.float32)
    actual = pixelate(torch.from_numpy(levels)[None, None], scale)[0, 0]
    assert np.abs(actual.numpy() - expected).max() <= 1  # PIL rounds once more, between the axes


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(64, 64), (33, 50), (1, 1), (9, 200)])
def test_jpeg_on_a_cpu_equals_pil(channels, size):
    images = draw_scenes(2, size=224).images[:, :channels, : size[0], : size[1]]
    for quality in (7, 25, 80):
        actual = jpeg_compression(images, quality)
        for image, result in zip(images, actual, strict=True):
            file, pixels = io.BytesIO(), image.permute(1, 2, 0).numpy()
            Image.fromarray(pixels[..., 0] if channels == 1 else pixels).save(file, "JPEG", quality=quality)
            expected = torch.from_numpy(np.array(Image.open(file))).view(*size, channels).permute(2, 0, 1)
            assert result.equal(expected)


@pytest.mark.parametrize("quality", [7, 10, 25, 50, 80])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_tensor_codec_is_close_to_libjpeg(quality, channels):
    images = draw_scenes(4, size=(90, 120)).images[:, :channels].contiguous()
    difference = (tensor_codec(images, quality).float() - real_codec(images, quality).float()).abs()
    assert difference.mean() < 1  # of 255; 2 are allowed


def test_the_affine_map_is_opencvs():
    image, random = torch.rand(1, 1, 32, 40), Randomness.of(0, "elastic_transform", 1, [0])
    rows, columns = torch.arange(32.0).view(1, 32, 1), torch.arange(40.0).view(1, 1, 40)
    actual = _sample(image, *_affine(random, rows, columns, 2.5), mirror=True)
    start = np.float32([[16 + 10, 20 + 10], [16 + 10, 20 - 10], [16 - 10, 20 - 10]])
    moved = start + random.uniform(3, 2, stream=1, low=-2.5, high=2.5)[0].numpy()
    matrix = cv2.getAffineTransform(start, moved)
    expected = cv2.warpAffine(image[0, 0].numpy(), matrix, (40, 32), borderMode=cv2.BORDER_REFLECT_101)
    assert np.abs(actual[0, 0].numpy() - expected).mean() < 0.02  # OpenCV's places are multiples of 1/32 pixel


def test_interpolation_equals_scipy():
    image = torch.rand(1, 1, 12, 15)
    y, x = torch.rand(1, 12, 15) * 20 - 4, torch.rand(1, 12, 15) * 23 - 4
    expected = scipy.ndimage.map_coordinates(image[0, 0].numpy(), [y[0].numpy(), x[0].numpy()], order=1, mode="reflect")
    np.testing.assert_allclose(_sample(image, y, x)[0, 0].numpy(), expected, atol=1e-5)


#: (α, σ, reach of the affine map) of the released ImageNet-C code by severity: times 244, for images of 224 pixels.
RELEASED = ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_elastic_transform_is_that_of_the_released_code(severity):
    """The steps of the release by OpenCV and SciPy, on our random numbers; those of imagecorruptions are others."""
    side = 112
    alpha, sigma, reach = (244 * part * side / 224 for part in RELEASED[severity - 1])
    image = draw_scenes(1, size=side, seed=2).images.float() / 255
    random = Randomness.of(0, "elastic_transform", severity, [0])
    points = (side // 2 + side // 3 * np.array([[1, 1], [1, -1], [-1, -1]])).astype(np.float32)
    moved = points + random.uniform(3, 2, stream=1, low=-reach, high=reach)[0].numpy()
    warped = cv2.warpAffine(
        image[0].permute(1, 2, 0).contiguous().numpy(),
        cv2.getAffineTransform(points, moved),
        (side, side),
        borderMode=cv2.BORDER_REFLECT_101,
    )
    dx, dy = (
        alpha * scipy.ndimage.gaussian_filter(field, sigma, mode="reflect", truncate=3)
        for field in random.uniform(2, side, side, low=-1, high=1)[0].double().numpy()
    )
    y, x = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    expected = [
        scipy.ndimage.map_coordinates(warped[..., c], (y + dy, x + dx), order=1, mode="reflect") for c in range(3)
    ]
    ours = corrupt(image, "elastic_transform", severity)[0].numpy()
    assert np.abs(ours - np.stack(expected)).mean() < 1e-3  # OpenCV reads at 32nds of a pixel
    other = corrupt(image, "elastic_transform", severity, parameters="imagecorruptions")[0].numpy()
    assert np.abs(other - np.stack(expected)).mean() > 1e-2
