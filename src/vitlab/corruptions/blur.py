"""Blur: defocus, frosted glass, motion, zoom, and Gaussian.

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
    """Gaussian smoothing with standard deviation σ; the image is extended by its edge.

    Args:
        images: (B, C, h, w).
        sigma: σ in pixels.

    Returns:
        (B, C, h, w).

    >>> gaussian_blur(torch.full((1, 3, 4, 5), 0.25), 6).sub(0.25).abs().max().item() < 1e-6
    True
    """
    return smooth(images, sigma).clamp_(0, 1)


def defocus_blur(images: Tensor, radius: float, softness: float) -> Tensor:
    """The mean over a disc of `radius` pixels, smoothed by a Gaussian: an out-of-focus lens.

    The disc is summed by rows: the run of half-width a is the run of a − 1 plus two values, and is used for every row
    of the disc with that width. This needs 4 · radius additions instead of π · radius². The reference smooths the disc
    in an array that may end at the edge of the disc and is mirrored there, so its kernel sums to 1.01 at severity 5.
    Here the sum is the same, but the excess is distributed over the whole disc (a difference below 0.3/255).

    Args:
        images: (B, C, h, w).
        radius: radius of the disc.
        softness: σ of the Gaussian, truncated at 1 pixel, or at 2 for a radius above 8.

    Returns:
        (B, C, h, w).

    >>> spot = torch.zeros(1, 1, 5, 5)
    >>> spot[..., 2, 2] = 1
    >>> defocus_blur(spot, 1, 0.01)[0, 0, 2].mul(5).tolist()  # a cross of five pixels
    [0.0, 1.0, 1.0, 1.0, 0.0]
    """
    reach, margin = floor(radius), 2 if radius > 8 else 1
    weights = gaussian_weights(softness, margin)
    padded = extend(images, reach + margin, reach + margin, "mirror")
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
    """Frosted glass: smooth, replace every pixel by a random neighbour, `rounds` times, and smooth again.

    The released code iterates over the pixels from the bottom right and is meant to swap each with a neighbour at most
    `reach` away, but because of NumPy's views it copies; so does this function. A pixel that copies from a visited
    pixel gets the value which that pixel copied. The ends of these chains are computed exactly by pointer doubling.

    Args:
        images: (B, C, h, w).
        random: the randomness of these images.
        sigma: σ of the smoothing.
        reach: largest distance of a neighbour.
        rounds: number of rounds of copies.

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
    """Returns (B, h · w): the source pixel of each pixel after one round of copies in descending order.

    Pixel p draws a neighbour q(p). If q is later in the raster, it was visited before p and has the value that it
    copied, so p gets the value at the end of the chain of q; otherwise p copies the original q. With J(p) = q(p) in the
    first case and p in the second, the end of the chain is J∘J∘…, computed by repeated squaring.
    """
    steps = random.halves(2, h, w, stream=stream).mul_(reach).bitwise_right_shift_(15)  # −reach … reach − 1
    step = steps[:, 1].mul_(w).add_(steps[:, 0])
    # Pixels near the edge are not changed: they draw themselves, which ends a chain.
    step[:, : reach + 1], step[:, :, : reach + 1] = 0, 0
    step[:, h - reach + 1 :], step[:, :, w - reach + 1 :] = 0, 0
    here = torch.arange(h * w, device=random.device)
    drawn = step.flatten(1) + here
    if reach == 1:  # all neighbours are above or to the left
        return drawn
    chain = torch.maximum(drawn, here)
    for _ in range(_DOUBLINGS):
        chain = chain.gather(1, chain)
    return drawn.gather(1, chain)


def motion_blur(images: Tensor, random: Randomness, radius: float, sigma: float) -> Tensor:
    """Motion blur at a random angle within ±45° of the horizontal.

    The one-sided kernel of imagecorruptions, which replaces ImageMagick's of the released code.

    Args:
        images: (B, C, h, w).
        random: the randomness of these images.
        radius: the kernel has 2 · radius + 1 taps.
        sigma: σ of their Gaussian weights.

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
        images: (B, C, h, w).
        farthest, step: end and step of the factors, as in `numpy.arange`.

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
    """Returns the weight of each pixel of the disc: the sum of the smoothed kernel, mirrored at its ends, per pixel."""
    reach = 8 if radius <= 8 else int(radius)
    axis = np.arange(-reach, reach + 1)
    disc = axis[:, None] ** 2 + axis**2 <= radius**2
    gain = np.zeros(len(axis))  # the part of each row and column that remains after smoothing
    for k, weight in enumerate(weights):
        np.add.at(gain, fold(np.arange(len(axis)) + k - len(weights) // 2, len(axis), "mirror"), weight)
    return float(gain @ disc @ gain / disc.sum() ** 2)


def _taps(images: Tensor, weights: tuple[float, ...], axis: int) -> Tensor:
    """Returns Σ_k weights[k] x(p + k) along an axis, for the positions where the whole kernel fits."""
    size = images.shape[axis] - len(weights) + 1
    total = images.narrow(axis, 0, size) * weights[0]
    for k, weight in enumerate(weights[1:], start=1):
        total.add_(images.narrow(axis, k, size), alpha=weight)
    return total
