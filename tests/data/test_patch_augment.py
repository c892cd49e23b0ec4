"""RVT's patch augmentation: independent for each patch, with its probability and range."""

from __future__ import annotations

import pytest
import torch

from vitlab.core.errors import VitlabError
from vitlab.data import patch_augment
from vitlab.data.patch_augment import augment_patches

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def normal(*shape: int) -> torch.Tensor:
    return 0.3 * torch.randn(shape, generator=torch.Generator().manual_seed(0)).clamp(-3, 3)


def patches(images: torch.Tensor, side: int = 16) -> list[torch.Tensor]:
    """All patches by a plain loop."""
    return [
        image[:, top : top + side, left : left + side]
        for image in images
        for top in range(0, images.shape[2], side)
        for left in range(0, images.shape[3], side)
    ]


def test_without_probability_nothing_changes() -> None:
    images = normal(2, 3, 32, 48)
    assert torch.equal(augment_patches(images, MEAN, STD, torch.Generator(), probability=0.0), images)


def test_share_of_changed_patches() -> None:
    images = normal(500, 3, 32, 32)
    changed = augment_patches(images, MEAN, STD, torch.Generator().manual_seed(0))
    share = sum(not torch.equal(a, b) for a, b in zip(patches(images), patches(changed), strict=True)) / 2000
    smaller = ((15.5 / 16) ** 2 - 0.85) / 0.15  # the rest of the windows round to the whole patch
    assert share == pytest.approx(1 - 0.9**2 * (1 - 0.1 * smaller), abs=0.02)


def test_flips_are_of_single_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch_augment, "_crop", lambda patch, _: patch)
    monkeypatch.setattr(patch_augment, "_noise", lambda patch, _: patch)
    images = normal(20, 3, 32, 48)
    changed = augment_patches(images, MEAN, STD, torch.Generator().manual_seed(0), probability=0.5)
    pairs = list(zip(patches(images), patches(changed), strict=True))
    flipped = sum(torch.equal(a.flip(2), b) for a, b in pairs)
    assert flipped == 60 and all(torch.equal(a, b) or torch.equal(a.flip(2), b) for a, b in pairs)


def test_noise_and_range() -> None:
    images = torch.zeros(64, 3, 32, 32)
    changed = augment_patches(images, MEAN, STD, torch.Generator().manual_seed(0), probability=1.0)
    assert changed.std().item() == pytest.approx(0.01, rel=0.02)
    wild = augment_patches(100 * normal(4, 3, 32, 32), MEAN, STD, torch.Generator().manual_seed(0))
    pixels = wild * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
    assert pixels.min() > -1e-5 and pixels.max() < 1 + 1e-5


def test_crops_zoom_in_slightly() -> None:
    ramp = torch.linspace(-1, 1, 16).expand(50, 3, 16, 16).contiguous()
    windowed = patch_augment._crop(ramp, torch.Generator().manual_seed(0))
    span = windowed[..., -1] - windowed[..., 0]
    assert span.min() > 2 * 13 / 15 - 0.01 and span.max() <= 2.001 and span.min() < 1.9


def test_wrong_size_is_refused() -> None:
    with pytest.raises(VitlabError, match="invalid side=16"):
        augment_patches(torch.zeros(1, 3, 20, 32), MEAN, STD, torch.Generator())
