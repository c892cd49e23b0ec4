"""Mixup and CutMix against a loop over images and pixels, and against timm's soft labels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from timm.data.mixup import mixup_target

from vitlab.core.recipe import Augment
from vitlab.data.mixing import Mixes, draw_mixes, mix_images, mix_labels

BOTH = Augment(mixup=0.8, cutmix=1.0)


def loop(images: torch.Tensor, mixes: Mixes) -> torch.Tensor:
    mixed = images.clone()
    for k in range(images.shape[0]):
        top, bottom, left, right = mixes.boxes[k].tolist()
        blend = mixes.blends[k].item()
        for i in range(images.shape[1]):
            partner = images[k, images.shape[1] - 1 - i]
            mixed[k, i] = blend * images[k, i] + (1 - blend) * partner
            mixed[k, i, :, top:bottom, left:right] = partner[:, top:bottom, left:right]
    return mixed


def test_images_are_those_of_a_loop() -> None:
    images = torch.randn(8, 5, 2, 6, 9, generator=torch.Generator().manual_seed(0))
    mixes = draw_mixes(BOTH, (6, 9), 0, 0, range(8))
    assert 0 < (mixes.blends == 1).sum() < 8  # both kinds are there
    torch.testing.assert_close(mix_images(images, mixes), loop(images, mixes))


def test_weight_is_the_share_of_the_frame() -> None:
    mixes = draw_mixes(Augment(cutmix=1.0), (8, 12), 0, 0, range(40))
    own = torch.cat((torch.ones(40, 1, 1, 8, 12), torch.zeros(40, 1, 1, 8, 12)), 1)
    shares = mix_images(own, mixes)[:, 0].mean((1, 2, 3))
    torch.testing.assert_close(shares, mixes.weights)
    assert mixes.weights.min() < 0.4 and mixes.weights.max() > 0.9


def test_loss_is_that_of_timms_soft_labels() -> None:
    labels, logits = torch.tensor([[0, 1, 2, 1]]), torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    mixes = draw_mixes(Augment(mixup=0.8), (4, 4), 3, 0, range(1))
    partners, weights = (part[0] for part in mix_labels(labels, mixes))
    own, other = (F.cross_entropy(logits, target, reduction="none") for target in (labels[0], partners))
    soft = mixup_target(labels[0], 3, mixes.weights.item())
    torch.testing.assert_close((weights * own + (1 - weights) * other).mean(), F.cross_entropy(logits, soft))


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0])
def test_mixup_weights_are_beta(alpha: float) -> None:
    weights = draw_mixes(Augment(mixup=alpha), (4, 4), 0, 0, range(4000)).weights
    assert weights.mean().item() == pytest.approx(0.5, abs=0.03)
    assert weights.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), abs=0.01)


def test_shares_of_batches() -> None:
    settings = Augment(mixup=0.8, cutmix=1.0, mix_probability=0.6, switch_probability=0.25)
    mixes = draw_mixes(settings, (64, 64), 0, 1, range(4000))
    blended = (mixes.blends < 1).float().mean().item()
    cut = (mixes.boxes.sum(1) > 0).float().mean().item()
    assert blended == pytest.approx(0.6 * 0.75, abs=0.03) and cut == pytest.approx(0.6 * 0.25, abs=0.03)


def test_unmixed_batches_keep_their_bits() -> None:
    images = torch.randn(2, 3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(mix_images(images, draw_mixes(Augment(), (4, 4), 0, 0, range(2))), images)


def test_a_batch_does_not_depend_on_its_chunk() -> None:
    whole, part = draw_mixes(BOTH, (8, 8), 5, 2, range(6)), draw_mixes(BOTH, (8, 8), 5, 2, range(4, 6))
    assert all(torch.equal(a[4:], b) for a, b in zip(whole, part, strict=True))
