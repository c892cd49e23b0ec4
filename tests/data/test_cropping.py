"""Crops against torchvision on single images."""

from __future__ import annotations

import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as tv

from vitlab.data.cropping import crop_and_flip, draw_crops, draw_resized_crops, resized_crop
from vitlab.data.scenes import draw_scenes


def test_padded_crop_and_flip() -> None:
    images = draw_scenes(40, size=(32, 48)).images
    crops = draw_crops(40, (32, 48), 0.5, torch.Generator().manual_seed(0))
    ours = crop_and_flip(images, crops)
    for i, image in enumerate(images):
        padded = tv.pad(image, [6, 4])
        expected = tv.crop(padded, int(crops.tops[i]) + 4, int(crops.lefts[i]) + 6, 32, 48)
        assert torch.equal(ours[i], tv.hflip(expected) if crops.mirrored[i] else expected)


def test_crops_are_uniform_and_flips_have_their_share() -> None:
    crops = draw_crops(90_000, (32, 32), 0.3, torch.Generator().manual_seed(0))
    shares = torch.bincount(crops.lefts + 4, minlength=9) / 90_000
    torch.testing.assert_close(shares, torch.full((9,), 1 / 9), atol=0.005, rtol=0)
    assert abs(crops.mirrored.float().mean().item() - 0.3) < 0.01


def test_resized_crop() -> None:
    images = draw_scenes(20, size=32).images
    boxes = draw_resized_crops(20, (32, 32), torch.Generator().manual_seed(0))
    ours = resized_crop(images, boxes).int()
    for i, image in enumerate(images):
        window = [int(side[i]) for side in boxes]
        expected = tv.resized_crop(image, *window, size=[32, 32], interpolation=InterpolationMode.BILINEAR)
        assert (ours[i] - expected.int()).abs().max() <= 1


def test_resized_crops_stay_inside_and_cover_their_range() -> None:
    tops, lefts, heights, widths = draw_resized_crops(5000, (32, 40), torch.Generator().manual_seed(0))
    assert tops.min() >= 0 and (tops + heights).max() <= 32 and lefts.min() >= 0 and (lefts + widths).max() <= 40
    area = heights * widths / (32 * 40)
    assert area.min() < 0.1 and area.max() > 0.9
