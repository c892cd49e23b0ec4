"""The operations on colour against Pillow, on pictures that scenes do not have: flat, two-coloured, nearly flat."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from vitlab.data import pixel_operations as pixels

PILLOW = {
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "brightness": lambda image, value: ImageEnhance.Brightness(image).enhance(value),
    "color": lambda image, value: ImageEnhance.Color(image).enhance(value),
    "contrast": lambda image, value: ImageEnhance.Contrast(image).enhance(value),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "invert": lambda image, _: ImageOps.invert(image),
    "posterize": lambda image, value: ImageOps.posterize(image, int(1 + 3.5 * value)),
    "sharpness": lambda image, value: ImageEnhance.Sharpness(image).enhance(value),
    "solarize": lambda image, value: ImageOps.solarize(image, int(128 * value)),
}
SCALES = {"posterize": lambda value: int(1 + 3.5 * value), "solarize": lambda value: int(128 * value)}


@pytest.mark.parametrize("name", PILLOW)
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 999), colours=st.integers(1, 256), value=st.floats(0.1, 1.9))
def test_operations_equal_pillow(name: str, seed: int, colours: int, value: float) -> None:
    random = np.random.default_rng(seed)
    picture = random.choice(256, colours, replace=False)[random.integers(0, colours, (24, 20, 3))].astype(np.uint8)
    expected = np.asarray(PILLOW[name](Image.fromarray(picture), value)).astype(int)
    argument = torch.tensor([SCALES.get(name, float)(value)], dtype=torch.float32)
    ours = getattr(pixels, name)(torch.from_numpy(picture).permute(2, 0, 1)[None], argument)
    difference = np.abs(ours[0].permute(1, 2, 0).numpy().astype(int) - expected)
    assert difference.max() <= (1 if name in ("autocontrast", "brightness", "color", "contrast", "sharpness") else 0)
    assert difference.mean() < 0.5


def test_each_image_has_its_own_argument() -> None:
    images = torch.full((3, 3, 4, 4), 200, dtype=torch.uint8)
    assert pixels.brightness(images, torch.tensor([0.0, 0.5, 2.0]))[:, 0, 0, 0].tolist() == [0, 100, 255]
    assert pixels.posterize(images, torch.tensor([0.0, 1.0, 8.0]))[:, 0, 0, 0].tolist() == [0, 128, 200]
    assert pixels.solarize(images, torch.tensor([0.0, 200.0, 256.0]))[:, 0, 0, 0].tolist() == [55, 55, 200]
