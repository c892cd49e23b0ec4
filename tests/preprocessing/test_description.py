from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from timm.data.transforms_factory import create_transform

import vitlab
from vitlab.preprocessing import Preprocessing
from vitlab.preprocessing.description import crop_for


def picture(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(width * 1000 + height).integers(0, 256, (height, width, 3), np.uint8))


@settings(max_examples=40, deadline=None)
@given(
    side=st.integers(8, 40),
    width=st.integers(8, 60),
    height=st.integers(8, 60),
    crop=st.sampled_from([0.7, 0.875, 0.9, 0.95, 1.0]),
    mode=st.sampled_from(["center", "squash", "border"]),
    interpolation=st.sampled_from(["bilinear", "bicubic", "lanczos"]),
)
def test_pixels_are_those_of_timm(side, width, height, crop, mode, interpolation) -> None:
    how = Preprocessing((side, side), crop=crop, crop_mode=mode, interpolation=interpolation)
    image = picture(width, height)
    expected = create_transform(
        (3, side, side), normalize=False, interpolation=interpolation, crop_pct=crop, crop_mode=mode, mean=how.mean
    )
    found = how.transform()(image)
    if image.size == (side, side):
        expected = lambda same: torch.from_numpy(np.array(same)).permute(2, 0, 1)  # noqa: E731
    assert torch.equal(found, expected(image))


def test_images_of_the_input_size_are_not_touched() -> None:
    image = picture(32, 32)
    for mode in ("center", "squash", "border"):
        found = Preprocessing((32, 32), crop=0.875, crop_mode=mode).transform()(image)
        assert np.array_equal(found.permute(1, 2, 0).numpy(), np.array(image))


@pytest.mark.parametrize("size", [(16, 32), (32, 16), (14, 21), (16, 40)])
def test_a_frame_that_is_not_square_has_no_borders(size: tuple[int, int]) -> None:
    for shape in ((40, 40), (30, 70), (70, 30)):
        found = Preprocessing(size, crop=0.9).transform()(Image.new("RGB", shape, "white"))
        assert found.shape == (3, *size) and int(found.min()) == 255


@given(size=st.integers(1, 2000), more=st.integers(0, 3000))
def test_the_crop_determines_the_resize(size, more) -> None:
    resize = size + more
    assert math.floor(size / crop_for(size, resize)) == resize


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": (0, 8)},
        {"size": "8"},
        {"mean": (0.5,)},
        {"mean": 0.5},
        {"std": (1.0, 1.0, 0.0)},
        {"crop": 0.0},
        {"crop": 1.5},
        {"crop": "0.9"},
        {"interpolation": "cubic"},
        {"crop_mode": "middle"},
    ],
)
def test_invalid_values_raise(wrong) -> None:
    with pytest.raises(vitlab.VitlabError, match=r"invalid preprocessing .*; expected size \(height, width\)"):
        Preprocessing(**{"size": (8, 8), **wrong})


def test_changed_fields_are_named() -> None:
    how = Preprocessing((8, 8), source="timm pretrained_cfg").changed({"crop": 1.0})
    assert how.crop == 1.0 and how.source == "timm pretrained_cfg, changed: crop"
    with pytest.raises(vitlab.VitlabError, match="no preprocessing setting 'crops'"):
        how.changed({"crops": 1.0})
    with pytest.raises(vitlab.VitlabError, match="expected a Preprocessing or a dict"):
        how.changed(224)


@pytest.mark.parametrize(("width", "height"), [(40, 40), (60, 40), (40, 61), (10, 12)])
def test_pixels_are_resize_and_centre_crop_by_hand(width: int, height: int) -> None:
    image = picture(width, height)
    shorter = round(28 / 0.875)
    w, h = (shorter, int(shorter * height / width)) if width <= height else (int(shorter * width / height), shorter)
    left, top = round((w - 28) / 2), round((h - 28) / 2)
    cropped = image.resize((w, h), Image.Resampling.BICUBIC).crop((left, top, left + 28, top + 28))
    found = Preprocessing((28, 28)).transform()(image)
    assert np.array_equal(found.permute(1, 2, 0).numpy(), np.asarray(cropped))
