"""Noise: Gaussian, shot, impulse and speckle, independent for every pixel and channel.

Hendrycks and Dietterich, ICLR 2019, Sec. 3 and Appendix B; speckle noise is one of the four extra corruptions.

Shape legend: B images, C channels (1 or 3), h w pixels. Images are float32 in [0, 1].
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitlab.corruptions.randomness import Randomness


def gaussian_noise(images: Tensor, random: Randomness, sigma: float) -> Tensor:
    """x + σ ε with ε ~ N(0, 1), as in low light.

    Args:
        images: (B, C, h, w).
        random: the randomness of these images.
        sigma: standard deviation.

    Returns:
        (B, C, h, w), clamped to [0, 1].

    >>> noisy = gaussian_noise(torch.full((1, 1, 64, 64), 0.5), Randomness.of(0, "gaussian_noise", 1, [0]), 0.08)
    >>> round(noisy.mean().item(), 2), round(noisy.std().item(), 2)
    (0.5, 0.08)
    """
    return random.normal(*images.shape[1:], deviation=sigma).add_(images).clamp_(0, 1)


def shot_noise(images: Tensor, random: Randomness, photons: float) -> Tensor:
    """Poisson(c x) / c: photon counts, c at white.

    Args:
        images: (B, C, h, w).
        random: the randomness of these images.
        photons: c.

    Returns:
        (B, C, h, w), clamped to [0, 1]: counts are at most c.

    >>> black = torch.zeros(1, 3, 2, 2)
    >>> shot_noise(black, Randomness.of(0, "shot_noise", 1, [0]), 60).sum().item()
    0.0
    """
    return random.poisson(images, most=int(photons)).div_(photons)


def impulse_noise(images: Tensor, random: Randomness, amount: float) -> Tensor:
    """Salt-and-pepper noise: each value is set to 1 or to 0, each with probability p / 2.

    Args:
        images: (B, C, h, w).
        random: the randomness of these images.
        amount: p.

    Returns:
        (B, C, h, w).

    >>> noisy = impulse_noise(torch.full((1, 3, 64, 64), 0.5), Randomness.of(0, "impulse_noise", 1, [0]), 0.1)
    >>> noisy.unique().tolist(), round((noisy != 0.5).float().mean().item(), 1)
    ([0.0, 0.5, 1.0], 0.1)
    """
    numbers = random.halves(*images.shape[1:]).float()  # integers, −32768 … 32767
    keep = numbers.abs().sub_(round(amount * 2**15) - 1).clamp_(0, 1)  # 0 or 1: arithmetic is faster than masks
    return torch.lerp(numbers.clamp_(0, 1), images, keep)


def speckle_noise(images: Tensor, random: Randomness, sigma: float) -> Tensor:
    """x + σ x ε with ε ~ N(0, 1): noise proportional to the intensity.

    Args:
        images: (B, C, h, w).
        random: the randomness of these images.
        sigma: standard deviation at white.

    Returns:
        (B, C, h, w), clamped to [0, 1].

    >>> speckle_noise(torch.zeros(1, 3, 2, 2), Randomness.of(0, "speckle_noise", 1, [0]), 0.6).sum().item()
    0.0
    """
    return random.normal(*images.shape[1:], mean=1, deviation=sigma).mul_(images).clamp_(0, 1)
