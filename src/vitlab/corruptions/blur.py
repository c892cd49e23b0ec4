"""Blur: out of focus, frosted glass, motion, zooming, and a plain Gaussian.

Hendrycks and Dietterich, ICLR 2019, Sec. 3 and Appendix B; Gaussian blur is one of the four extra corruptions.

Shape legend: B images, C channels (1 or 3), h w pixels. Images are float32 in [0, 1].
"""

from __future__ import annotations

from math import floor, pi, sqrt

import numpy as np
import torch
from torch import Tensor

from vitlab.corruptions.filters import extend, fold, gaussian_weights, smooth, streak, zoom_in
from vitlab.corruptions.randomness import Randomness

_DOUBLINGS = 5  # chains of up to 32 pixels; a longer one has probability 0.42^32 = 1e-12


def gaussian_blur(images: Tensor, sigma: float) -> Tensor:
    """Gaussian smoothing with standard deviation σ, the image going on with its edge.

    Args:
        images: (B, C, h, w). sigma: in pixels.

    Returns:
        (B, C, h, w).

    >>> gaussian_blur(torch.full((1, 3, 4, 5), 0.25), 6).sub(0.25).abs().max().item() < 1e-6
    True
    """
    return smooth(images, sigma).clamp_(0, 1)


def defocus_blur(images: Tensor, radius: float, softness: float) -> Tensor:
    """The mean over a disc of `radius` pixels, its rim softened by a Gaussian: a lens out of focus.

    The disc is summed by rows: the run of half-width a is the run of a − 1 with two more values, and serves every row
    of the disc that is so wide; 4 · radius additions instead of π · radius². The reference softens the disc in an array
    that may end at its rim and is mirrored there, so that the kernel sums to 1.01 at severity 5: ours is as bright, but
    spreads the excess over the whole disc (below 0.3/255).

    Args:
        images: (B, C, h, w). radius: of the disc. softness: σ of the Gaussian, cut at 1 pixel, 2 for a radius above 8.

    Returns:
        (B, C, h, w).

    >>> spot = torch.zeros(1, 1, 5, 5)
    >>> spot[..., 2, 2] = 1
    >>> defocus_blur(spot, 1, 0.01)[0, 0, 2].mul(5).tolist()  # a plus of five pixels
    [0.0, 1.0, 1.0, 1.0, 0.0]
    """
    reach, rim = floor(radius), 2 if radius > 8 else 1
    weights = gaussian_weights(softness, rim)
    padded = extend(images, reach + rim, reach + rim, "mirror")
    padded = _taps(_taps(padded, weights, -2), weights, -1)
    h, w = images.shape[-2:]
    widths = [floor(sqrt(radius**2 - dy**2)) for dy in range(reach + 1)]
    run = padded[..., reach : reach + w].clone()
    total = torch.zeros_like(images)
    for a in range(reach + 1):
        if a:
            run.add_(padded[..., reach - a : reach - a + w]).add_(padded[..., reach + a : reach + a + w])
        for dy in range(-reach, reach + 1):
            if widths[abs(dy)] == a:
                total.add_(run[..., reach + dy : reach + dy + h, :])
    return total.mul_(_weight(radius, weights)).clamp_(0, 1)


def glass_blur(images: Tensor, random: Randomness, sigma: float, reach: float, rounds: float) -> Tensor:
    """Frosted glass: smooth, let every pixel take the value of a random neighbour, `rounds` times, smooth again.

    The released code goes through the pixels from the bottom right and means to swap each with a neighbour at most
    `reach` away, but NumPy's views make that a copy; so it is here. A pixel that copies from one already visited gets
    what that one copied: a chain, whose end pointer doubling finds for all pixels at once, exactly.

    Args:
        images: (B, C, h, w). random: of these images. sigma: of the smoothing. reach: of neighbours. rounds: of copies.

    Returns:
        (B, C, h, w).

    >>> flat = torch.full((1, 3, 8, 8), 0.2)
    >>> glass_blur(flat, Randomness.of(0, "glass_blur", 1, [0]), 0.7, 1, 2).sub(0.2).abs().max().item() < 1e-6
    True
    """
    h, w = images.shape[-2:]
    smoothed = smooth(images, sigma).mul(255).add_(1e-3).floor_().div_(255)
    source = shuffle(random, h, w, int(reach))
    for stream in range(1, int(rounds)):
        source = source.gather(1, shuffle(random, h, w, int(reach), stream))
    shuffled = smoothed.flatten(2).gather(2, source[:, None].expand(-1, images.shape[1], -1))
    return smooth(shuffled.view_as(images), sigma).clamp_(0, 1)


def shuffle(random: Randomness, h: int, w: int, reach: int, stream: int = 0) -> Tensor:
    """(B, h · w): the pixel whose value each pixel has after one round of copies in descending order.

    Pixel p draws a neighbour q(p). Where q comes later in the raster, it was visited before p and holds what it copied,
    so p's value is that of q's end; else p copies q as it was. With J(p) = q(p) in the first case and p in the second,
    the end of the chain is J∘J∘…, squared until nothing changes.
    """
    steps = random.halves(2, h, w, stream=stream).mul_(reach).bitwise_right_shift_(15)  # −reach … reach − 1
    step = steps[:, 1].mul_(w).add_(steps[:, 0])
    # A rim stays as it is. Its pixels draw themselves, which ends a chain.
    step[:, : reach + 1], step[:, :, : reach + 1] = 0, 0
    step[:, h - reach + 1 :], step[:, :, w - reach + 1 :] = 0, 0
    here = torch.arange(h * w, device=random.device)
    drawn = step.flatten(1) + here
    if reach == 1:  # all neighbours lie above or to the left
        return drawn
    chain = torch.maximum(drawn, here)
    for _ in range(_DOUBLINGS):
        chain = chain.gather(1, chain)
    return drawn.gather(1, chain)


def motion_blur(images: Tensor, random: Randomness, radius: float, sigma: float) -> Tensor:
    """A streak along a random angle within ±45° of the horizontal: a camera that moves.

    The one-sided kernel of imagecorruptions, which stands in for ImageMagick's in the released code.

    Args:
        images: (B, C, h, w). random: of these images. radius: 2 · radius + 1 taps. sigma: of their Gaussian weights.

    Returns:
        (B, C, h, w).

    >>> flat = torch.full((1, 3, 8, 8), 0.2)
    >>> motion_blur(flat, Randomness.of(0, "motion_blur", 1, [0]), 10, 3).sub(0.2).abs().max().item() < 1e-6
    True
    """
    return streak(images, random.uniform(1, low=-pi / 4, high=pi / 4)[:, 0], int(radius), sigma).clamp_(0, 1)


def zoom_blur(images: Tensor, farthest: float, step: float) -> Tensor:
    """The mean of the image and of its enlargements by 1, 1 + step, … up to `farthest`, excluded.

    Args:
        images: (B, C, h, w). farthest, step: of the enlargements, as `numpy.arange` counts them.

    Returns:
        (B, C, h, w).

    >>> zoom_blur(torch.full((1, 3, 8, 8), 0.2), 1.11, 0.01).sub(0.2).abs().max().item() < 1e-6
    True
    """
    h, w = images.shape[-2:]
    factors = np.arange(1, farthest, step).tolist()
    total = images.clone()
    for factor in factors:
        total += zoom_in(images, factor)[..., :h, :w]
    return total.div_(len(factors) + 1).clamp_(0, 1)


def _weight(radius: float, weights: tuple[float, ...]) -> float:
    """What each pixel of the disc weighs: the sum of the softened kernel, mirrored at its ends, over its pixels."""
    reach = 8 if radius <= 8 else int(radius)
    axis = np.arange(-reach, reach + 1)
    disc = axis[:, None] ** 2 + axis**2 <= radius**2
    gain = np.zeros(len(axis))  # how much of each row and column is left after softening
    for k, weight in enumerate(weights):
        np.add.at(gain, fold(np.arange(len(axis)) + k - len(weights) // 2, len(axis), "mirror"), weight)
    return float(gain @ disc @ gain / disc.sum() ** 2)


def _taps(images: Tensor, weights: tuple[float, ...], axis: int) -> Tensor:
    """Σ_k weights[k] x(p + k) along an axis, where the whole kernel fits."""
    size = images.shape[axis] - len(weights) + 1
    total = images.narrow(axis, 0, size) * weights[0]
    for k, weight in enumerate(weights[1:], start=1):
        total.add_(images.narrow(axis, k, size), alpha=weight)
    return total
