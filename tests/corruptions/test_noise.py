import pytest
import torch

from vitlab.corruptions.noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from vitlab.corruptions.randomness import Randomness

GREY = torch.full((4, 3, 64, 64), 0.4)


def of(name):
    return Randomness.of(0, name, 1, range(4))


def test_moments_are_those_of_the_formulas():
    cases = [
        (gaussian_noise, 0.08, 0.08**2),
        (speckle_noise, 0.2, (0.2 * 0.4) ** 2),
        (shot_noise, 60, 0.4 / 60),
    ]
    for function, strength, variance in cases:
        noisy = function(GREY, of(function.__name__), strength)
        assert noisy.mean().item() == pytest.approx(0.4, abs=4 * (variance / GREY.numel()) ** 0.5)
        assert noisy.var().item() == pytest.approx(variance, rel=0.03)


def test_impulses_are_white_and_black_equally_often():
    noisy = impulse_noise(GREY, of("impulse_noise"), 0.2)
    for value, share in ((0.0, 0.1), (1.0, 0.1), (0.4, 0.8)):
        assert (noisy == value).float().mean().item() == pytest.approx(share, abs=0.006)


def test_channels_and_images_get_independent_noise():
    noise = (gaussian_noise(GREY, of("gaussian_noise"), 0.05) - 0.4).flatten(2).flatten(0, 1)
    related = torch.corrcoef(noise) - torch.eye(12)
    assert related.abs().max() < 0.07  # 4.5 standard errors


def test_the_input_is_unchanged():
    for function, strength in ((gaussian_noise, 0.1), (shot_noise, 5), (impulse_noise, 0.1), (speckle_noise, 0.1)):
        images = torch.rand(2, 3, 8, 8)
        before = images.clone()
        function(images, Randomness.of(0, "x", 1, [0, 1]), strength)
        assert images.equal(before)
