"""RandAugment against timm's operations on Pillow images."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import auto_augment as timm_augment

from vitlab.core.errors import VitlabError
from vitlab.data.randaugment import OPERATIONS, Layer, RandAugment, apply_layer, draw_layer, parse
from vitlab.data.scenes import draw_scenes

FILL = (120, 130, 140)
TIMM = {
    "rotate": "Rotate",
    "shear_x": "ShearX",
    "shear_y": "ShearY",
    "translate_x": "TranslateXRel",
    "translate_y": "TranslateYRel",
    "autocontrast": "AutoContrast",
    "equalize": "Equalize",
    "invert": "Invert",
    "solarize_add": "SolarizeAdd",
}
CHANGING = {
    name: name.capitalize() for name in ("posterize", "solarize", "color", "contrast", "brightness", "sharpness")
}


def timm_name(name: str, increasing: bool) -> str:
    return TIMM[name] if name in TIMM else CHANGING[name] + ("Increasing" if increasing else "")


def by_timm(images: torch.Tensor, name: str, magnitude: float) -> np.ndarray:
    settings = {"img_mean": FILL, "interpolation": Image.Resampling.BILINEAR}
    operation = timm_augment.AugmentOp(name, prob=1.0, magnitude=magnitude, hparams=settings)
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
    return np.stack([np.asarray(operation(picture)) for picture in pictures]).transpose(0, 3, 1, 2).astype(int)


def by_us(images: torch.Tensor, name: str, magnitude: float, sign: float, increasing: bool) -> np.ndarray:
    """All images are assigned to one operation; the others have none."""
    count = len(images)
    rows = torch.arange(15 * count).roll(OPERATIONS.index(name) * count)
    layer = Layer(rows, rows < count, torch.full((15 * count,), magnitude), torch.full((15 * count,), sign))
    return apply_layer(images, layer, increasing, torch.tensor(FILL, dtype=torch.float32)).numpy().astype(int)


@pytest.mark.parametrize("increasing", [False, True])
@pytest.mark.parametrize("magnitude", [2.7, 9.0])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_equal_timm(name: str, magnitude: float, increasing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    images = draw_scenes(4, size=(32, 40), seed=1).images
    if name == "posterize" and not increasing:
        magnitude = max(magnitude, 3.0)  # Pillow refuses to keep no bit at all
    for sign in (1.0, -1.0):
        monkeypatch.setattr(timm_augment, "_randomly_negate", lambda value, sign=sign: sign * value)
        expected = by_timm(images, timm_name(name, increasing), magnitude)
        difference = np.abs(by_us(images, name, magnitude, sign, increasing) - expected)
        assert difference.max() <= 1 and difference.mean() < 0.05, (sign, difference.mean())


@pytest.mark.parametrize(
    "text", ["rand-m9-n2-mstd0.5-inc1", "rand-m7-mstd0.5", "rand", "rand-m5-n3-p0.7-mmax12", "rand-mstd101-inc0"]
)
def test_text_is_parsed_as_in_timm(text: str) -> None:
    ours, theirs = parse(text), timm_augment.rand_augment_transform(text)
    operation = theirs.ops[0]
    assert ours.layers == theirs.num_layers
    assert (ours.magnitude, ours.probability) == (operation.magnitude, operation.prob)
    assert (ours.deviation, ours.largest) == (operation.magnitude_std, operation.magnitude_max or 10)
    assert ours.increasing == any("Increasing" in op.name for op in theirs.ops)
    assert len(OPERATIONS) == len(theirs.ops)


@pytest.mark.parametrize("text", ["augmix-m3", "rand-x3", "rand-tweights", "rand-m", "rand-m9-"])
def test_invalid_text_raises(text: str) -> None:
    with pytest.raises(VitlabError, match="rand"):
        parse(text)


def test_shares_and_magnitudes() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = draw_layer(60_000, parse("rand-m9-mstd0.5-inc1"), generator)
    runs = layer.active.view(len(OPERATIONS), -1).sum(1).float() / 60_000
    torch.testing.assert_close(runs, torch.full_like(runs, 0.5 / 15), atol=2e-4, rtol=0)
    # E[min(9 + Z/2, 10)] = 9 - E[(Z/2 - 1)+], the expected overshoot of a normal above two deviations, 0.00849 σ.
    assert layer.magnitudes.mean().item() == pytest.approx(9 - 0.5 * 0.00849, abs=0.01)
    assert layer.magnitudes.max() <= 10 and layer.signs.mean().abs() < 0.02


def test_infinite_deviation_is_uniform() -> None:
    drawn = draw_layer(
        60_000, RandAugment(magnitude=8, deviation=math.inf), torch.Generator().manual_seed(0)
    ).magnitudes
    assert drawn.mean().item() == pytest.approx(4, abs=0.06) and drawn.std().item() == pytest.approx(
        8 / 12**0.5, abs=0.05
    )


@pytest.mark.parametrize("count", [1, 7, 64])
def test_small_chunks_keep_their_shape(count: int) -> None:
    images = draw_scenes(count, size=32).images
    layer = draw_layer(count, parse("rand-m9-p1-inc1"), torch.Generator().manual_seed(2))
    changed = apply_layer(images, layer, True, torch.zeros(3))
    assert changed.shape == images.shape and changed.dtype == torch.uint8
    assert (changed != images).flatten(1).any(1).sum() >= 0.6 * count  # p = 1: all but what the operation leaves as is


def test_probability_zero_is_the_identity() -> None:
    images = draw_scenes(3, size=32).images
    layer = draw_layer(3, parse("rand-m9-p0"), torch.Generator().manual_seed(2))
    assert torch.equal(apply_layer(images, layer, False, torch.zeros(3)), images)
