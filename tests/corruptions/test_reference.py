"""Ours against imagecorruptions-imaug, the code of the benchmark's authors as packaged: a development dependency."""

import warnings

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from vitlab.corruptions import CORRUPTIONS, EXTRA, corrupt
from vitlab.data.scenes import draw_scenes

imagecorruptions = pytest.importorskip("imagecorruptions")
metrics = pytest.importorskip("skimage.metrics")

PLAIN = (
    "defocus_blur", "zoom_blur", "gaussian_blur", "brightness", "contrast", "pixelate", "jpeg_compression", "saturate",
)  # fmt: skip
#: How many draws bring three standard errors of a difference below 3 %: small images, where these are cheap.
RANDOM = {name: 100 for name in CORRUPTIONS + EXTRA if name not in PLAIN}
RANDOM |= {"fog": 1600, "snow": 400, "glass_blur": 24, "frost": 120}
#: Frost is another texture (`ice`), and six photographs of the benchmark's size vary much: no nearer than this.
TOLERANCE = {"frost": 0.1}


def reference(images: torch.Tensor, name: str, severity: int) -> torch.Tensor:
    np.random.seed(severity)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays = [imagecorruptions.corrupt(image, severity, name) for image in images.permute(0, 2, 3, 1).numpy()]
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2)


def similarity(images: torch.Tensor, clean: torch.Tensor) -> torch.Tensor:
    pairs = zip(images.numpy(), clean.numpy(), strict=True)
    return torch.tensor([metrics.structural_similarity(a, b, channel_axis=0) for a, b in pairs])


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", PLAIN)
def test_deterministic_corruptions_are_within_one_level(name, severity):
    for size in ((97, 130), (224, 224)):
        images = draw_scenes(2, size=size).images
        ours = corrupt(images, name, severity, parameters="imagenet")
        difference = (ours.float() - reference(images, name, severity).float()).abs().mean()
        assert difference < 1


@pytest.mark.slow
@pytest.mark.parametrize("severity", [1, 3, 5])
@pytest.mark.parametrize("name", sorted(RANDOM))
def test_random_corruptions_agree_in_mean_variance_and_similarity(name, severity):
    # 20 + 200/255 of the range: less is cut off, so that differences show.
    size = (224, 224) if name == "frost" else (64, 64)
    images = (draw_scenes(1, size=size, seed=5).images.float() * 0.8 + 20).to(torch.uint8)
    images = images.expand(RANDOM[name], -1, -1, -1).contiguous()
    ours, theirs = corrupt(images, name, severity, parameters="imagecorruptions"), reference(images, name, severity)
    statistics = {
        "mean": lambda result: result.float().mean((1, 2, 3)).mean().item(),
        "variance": lambda result: result.float().var((1, 2, 3)).mean().item(),
        "similarity": lambda result: similarity(result, images).mean().item(),
    }
    for what, statistic in statistics.items():
        assert statistic(ours) == pytest.approx(statistic(theirs), rel=TOLERANCE.get(name, 0.03)), what


def test_small_images_get_the_strengths_of_cifar_c():
    """Noise, blur and contrast of the released CIFAR-C code, which no package has, by NumPy and SciPy."""
    images = draw_scenes(4, size=32).images.float() / 255
    grey = torch.full((1, 3, 32, 32), 0.5).expand(50, -1, -1, -1)
    for severity in (1, 2, 3, 4, 5):
        sigma = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
        assert corrupt(grey, "gaussian_noise", severity).std().item() == pytest.approx(sigma, rel=0.01)
        width = (0.4, 0.6, 0.7, 0.8, 1)[severity - 1]
        blurred = gaussian_filter(images.numpy(), (0, 0, width, width), mode="nearest")
        np.testing.assert_allclose(corrupt(images, "gaussian_blur", severity).numpy(), blurred, atol=1e-5)
        factor, means = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1], images.numpy().mean((2, 3), keepdims=True)
        paler = (images.numpy() - means) * factor + means
        np.testing.assert_allclose(corrupt(images, "contrast", severity).numpy(), paler, atol=1e-5)
