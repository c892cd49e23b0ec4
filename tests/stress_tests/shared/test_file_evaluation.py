"""Preprocessing of files against timm's pipeline, and standard errors over sets that share images."""

from __future__ import annotations

import numpy as np
import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from timm.data import create_transform, resolve_data_config

from cases.published import Colours
from vitlab.data.images import ImageArray
from vitlab.data.scenes import draw_scenes
from vitlab.stress_tests.shared.file_evaluation import (
    STORED,
    classifier_setup,
    classify_set,
    is_correct,
    mean_over_sets,
)
from vitlab.stress_tests.shared.pixel_evaluation import mean_and_error


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 4), st.integers(2, 9), st.integers(0, 1000))
def test_complete_sets_give_the_usual_standard_error(sets, images, seed) -> None:
    each = np.random.default_rng(seed).integers(0, 2, (sets, images)).astype(float)
    mean, error = mean_and_error(each.mean(0))
    np.testing.assert_allclose(mean_over_sets(each), (mean, error), atol=1e-12)


def test_sets_of_different_images_are_independent() -> None:
    """(e₁² + e₂²) / 4, but for the factors n / (n − 1)."""
    generator = np.random.default_rng(0)
    one, two = generator.integers(0, 2, 300).astype(float), generator.integers(0, 2, 200).astype(float)
    each = np.full((2, 500), np.nan)
    each[0, :300], each[1, 300:] = one, two
    mean, error = mean_over_sets(each)
    assert mean == pytest.approx((one.mean() + two.mean()) / 2)
    apart = np.hypot(mean_and_error(one)[1], mean_and_error(two)[1]) / 2
    assert error == pytest.approx(float(apart), rel=5e-3)


def test_the_error_is_the_spread_of_the_estimate() -> None:
    """Against draws: three sets of the same images, of which the last contains half of them."""
    generator = np.random.default_rng(1)
    means, errors = [], []
    for _ in range(400):
        hard = generator.random(60)
        each = (generator.random((3, 60)) > hard).astype(float)
        each[2, ::2] = np.nan
        mean, error = mean_over_sets(each)
        means.append(mean)
        errors.append(error)
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.12)


def test_no_images() -> None:
    assert np.isnan(mean_over_sets(np.full((2, 3), np.nan))).all()
    mean, error = mean_over_sets(np.array([[1.0, np.nan], [np.nan, np.nan]]))
    assert mean == 1 and np.isnan(error)


@pytest.mark.parametrize("config", [{}, {"crop_pct": 0.95, "interpolation": "bilinear"}, {"crop_mode": "squash"}])
def test_preprocessing_equals_timms(config) -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, embed_dim=12, num_heads=1)
    model.pretrained_cfg = {**model.pretrained_cfg, "input_size": (3, 32, 32), **config}
    picture = Image.fromarray(draw_scenes(1, (50, 41)).images[0].permute(1, 2, 0).numpy())
    resolved = classifier_setup(model, "test", None, 1, 0).preprocessing
    shown = resolved.transform()(picture).float() / 255
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (resolved.mean, resolved.std))
    expected = create_transform(**resolve_data_config({}, model=model))(picture)
    torch.testing.assert_close((shown - mean) / std, expected)


def test_precedence_of_the_preprocessing() -> None:
    model = Colours(size=8, crop_pct=0.9)

    def crop(given=None, **others) -> float:
        return classifier_setup(model, "test", given, 1, 0, classes=None, **others).preprocessing.crop

    assert crop(fallback={"crop": 0.5}) == 0.9
    assert crop(override=STORED, fallback={"crop": 0.5}) == 1
    assert crop({"crop": 0.7, "size": [4, 6]}, override=STORED) == 0.7


def test_half_precision_and_wrappers() -> None:
    """The model gets images in its own precision, and its wrapper is removed."""

    class Half(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(3, 5, dtype=torch.bfloat16)

        def forward(self, images):
            assert images.dtype == torch.bfloat16
            return self.head(images.mean((2, 3)))

    images = ImageArray(draw_scenes(4, 16).images, torch.zeros(4, dtype=torch.int64), ("a",) * 5)
    setup = classifier_setup(
        torch.nn.DataParallel(Half()), "test", {"size": 16, "mean": (0.5,) * 3, "std": (0.5,) * 3}, 3, 0, classes=None
    )
    answers, broken = classify_set(setup, images, "scenes", 1)
    assert isinstance(setup.model, Half) and setup.classes == 5 and answers.shape == (1, 4) and broken == []
    assert set(is_correct(answers, images.labels)[0]) <= {0.0, 1.0}
