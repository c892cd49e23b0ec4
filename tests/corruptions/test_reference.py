"""Ours against imagecorruptions-imaug, the code of the benchmark's authors as packaged: a development dependency."""

import warnings

import numpy as np
import pytest
import torch

from vitlab.corruptions import CORRUPTIONS, EXTRA, corrupt
from vitlab.data.scenes import draw_scenes

imagecorruptions = pytest.importorskip("imagecorruptions")
metrics = pytest.importorskip("skimage.metrics")

PLAIN = (
    "defocus_blur", "zoom_blur", "gaussian_blur", "brightness", "contrast", "pixelate", "jpeg_compression", "saturate",
)  # fmt: skip
# Frost and fog differ much from image to image (six photographs, a fractal): more images, and the same clean one.
RANDOM = {name: 12 for name in CORRUPTIONS + EXTRA if name not in PLAIN} | {"frost": 36, "fog": 90, "motion_blur": 40}


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
def test_deterministic_ones_are_within_one_level(name, severity):
    for size in ((97, 130), (224, 224)):
        images = draw_scenes(2, size=size).images
        ours = corrupt(images, name, severity, parameters="imagenet")
        difference = (ours.float() - reference(images, name, severity).float()).abs().mean()
        assert difference < 1


@pytest.mark.parametrize("severity", [1, 3, 5])
@pytest.mark.parametrize("name", sorted(RANDOM))
def test_random_ones_are_alike_in_mean_variance_and_similarity(name, severity):
    # 20 + 200/255 of the range: less is cut off, so that differences show.
    # Crops of the photographs of ice vary less where they are smaller: the size of the benchmark for those.
    size = (224, 224) if name == "frost" else (112, 128)
    images = (draw_scenes(1, size=size, seed=5).images.float() * 0.8 + 20).to(torch.uint8)
    images = images.expand(RANDOM[name], -1, -1, -1).contiguous()
    ours, theirs = corrupt(images, name, severity), reference(images, name, severity)
    statistics = {
        "mean": lambda result: result.float().mean((1, 2, 3)),
        "variance": lambda result: result.float().var((1, 2, 3)),
        "similarity": lambda result: similarity(result, images),
    }
    for what, statistic in statistics.items():
        a, b = statistic(ours), statistic(theirs)
        # 3 %, or what chance allows where images differ so much: three standard errors of the difference.
        chance = 3 * ((a.var() + b.var()) / len(a)).sqrt().item()
        assert a.mean().item() == pytest.approx(b.mean().item(), rel=0.03, abs=chance), what
