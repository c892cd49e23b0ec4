"""Weather: snow, frost, fog, brightness, and spatter on the lens.

Hendrycks and Dietterich, ICLR 2019, Sec. 3 and Appendix B; spatter is one of the four extra corruptions.

Shape legend: B images, C channels (1 or 3), h w pixels. Images are float32 in [0, 1].
"""

from __future__ import annotations

from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.corruptions.colour import luma, tint
from vitlab.corruptions.filters import smooth, streak, zoom_in
from vitlab.corruptions.randomness import Randomness
from vitlab.corruptions.spatter_relief import relief
from vitlab.corruptions.textures import ice, plasma

_WATER, _MUD = (175, 238, 238), (63, 42, 20)


def snow(
    images: Tensor,
    random: Randomness,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    keep: float,
) -> Tensor:
    """Snow: thresholded, enlarged Gaussian noise with downward motion blur, added twice to a paler image.

    keep · x + (1 − keep) · max(x, 1.5 luma(x) + 0.5) + s + s rotated by 180°, where s is the layer of flakes.
    The steps are those of the released code; the random numbers differ. Over 24 images of 224 × 224 at severities 1, 3
    and 5 the mean differs by at most 0.3 %, the variance by 0.8 %, the similarity (SSIM) to the clean image by 1.5 %.

    Args:
        images: (B, C, h, w).
        random: the randomness of these images.
        mean, deviation: mean and standard deviation of the noise.
        zoom: size of a flake.
        threshold: smaller values of the noise are set to zero.
        radius, sigma: radius and σ of the motion blur, see `streak`; its angle is within 45° of the vertical.
        keep: weight of the unmodified image against the paler one.

    Returns:
        (B, C, h, w), clamped to [0, 1].

    >>> white = torch.ones(1, 3, 16, 16)
    >>> snow(white, Randomness.of(0, "snow", 1, [0]), 0.1, 0.3, 3, 0.5, 10, 4, 0.8).mean().item()
    1.0
    """
    h, w = images.shape[-2:]
    flakes = zoom_in(random.normal(1, h, w, mean=mean, deviation=deviation), zoom)
    flakes = F.threshold(flakes, threshold, 0).clamp_(0, 1)
    angle = random.uniform(1, stream=1, low=-3 * pi / 4, high=-pi / 4)[:, 0]
    flakes = streak(flakes, angle, int(radius), sigma)[..., :h, :w].mul(255).round_().div_(255)
    pale = torch.maximum(images, luma(images) * 1.5 + 0.5).mul_(1 - keep)
    return pale.add_(images, alpha=keep).add_(flakes).add_(flakes.flip(2, 3)).clamp_(0, 1)


def frost(images: Tensor, random: Randomness, keep: float, amount: float) -> Tensor:
    """keep · x + amount · ice, with a random texture of ice.

    The released code crops one of six photographs. vitlab contains no image files: `ice` generates textures with the
    mean and variance of each photograph's channels, and needles and patches of similar contrast, but not the same
    crystals. Differences from the reference on 250 photographs of ImageNet at 224 × 224 and severities 1, 3 and 5:
    mean +1.5, +1.4 and +0.5 %, variance −0.2, +1.1 and +4.1 %, similarity (SSIM) to the clean image +0.8, −0.5 and
    −0.9 %, with standard errors of 0.6 to 2.9 %. Errors under frost are close to those of the benchmark, not equal.

    Args:
        images: (B, C, h, w).
        random: the randomness of these images.
        keep, amount: the two weights.

    Returns:
        (B, C, h, w), clamped to [0, 1].

    >>> frost(torch.ones(1, 3, 16, 16), Randomness.of(0, "frost", 1, [0]), 1.0, 0.4).mean().item()
    1.0
    """
    h, w = images.shape[-2:]
    texture = ice(random, h, w)
    texture = luma(texture) if images.shape[1] == 1 else texture
    return texture.mul_(amount).add_(images, alpha=keep).clamp_(0, 1)


def fog(images: Tensor, random: Randomness, amount: float, decay: float) -> Tensor:
    """(x + a p) · m / (m + a), where p is a plasma fractal in [0, 1] and m is the largest value of the image.

    The diamond-square algorithm of the released code, with different random numbers.

    Args:
        images: (B, C, h, w).
        random: the randomness of these images.
        amount: a.
        decay: decay of the amplitude of p per scale, see `plasma`.

    Returns:
        (B, C, h, w), clamped to [0, 1].

    >>> foggy = fog(torch.zeros(1, 3, 8, 8), Randomness.of(0, "fog", 1, [0]), 1.5, 2)
    >>> foggy.sum().item()  # all black: m is 0
    0.0
    """
    h, w = images.shape[-2:]
    side = 1 << (max(h, w, images.shape[1]) - 1).bit_length()
    largest = images.flatten(1).amax(1).view(-1, 1, 1, 1)
    haze = plasma(random, side, decay)[:, None, :h, :w] * amount
    return (images + haze).mul_(largest / (largest + amount)).clamp_(0, 1)


def brightness(images: Tensor, amount: float) -> Tensor:
    """V ↦ V + amount in HSV, clamped to [0, 1]: every channel is multiplied by V′ / V, and black becomes grey.

    Args:
        images: (B, C, h, w).
        amount: added to V = max(R, G, B).

    Returns:
        (B, C, h, w).

    >>> brightness(torch.tensor([0.5, 0.25, 0.0]).view(1, 3, 1, 1), 0.1).flatten().tolist()
    [0.6000..., 0.3000..., 0.0]
    >>> brightness(torch.zeros(1, 3, 1, 1), 0.1).flatten().tolist()
    [0.1000..., 0.1000..., 0.1000...]
    """
    value = images.amax(1, keepdim=True)
    brighter = value.add(amount).clamp_(max=1)
    return torch.where(value > 0, images * (brighter / value.clamp(min=1e-9)), brighter).clamp_(0, 1)


def spatter(
    images: Tensor,
    random: Randomness,
    mean: float,
    deviation: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: float,
) -> Tensor:
    """Drops on the lens: smoothed Gaussian noise above a threshold, as pale turquoise water or brown mud.

    Water adds a relief of the drops (`spatter_relief.relief`), at most `strength`; mud covers the image.

    Args:
        images: (B, C, h, w).
        random: the randomness of these images.
        mean, deviation: mean and standard deviation of the noise.
        sigma: size of a drop.
        threshold: value of the noise at the edge of a drop.
        strength: strength of the water, or σ in pixels of the smoothing of the mud.
        mud: 0 or 1.

    Returns:
        (B, C, h, w), clamped to [0, 1].

    >>> plain = torch.full((1, 3, 8, 8), 0.5)
    >>> spatter(plain, Randomness.of(0, "spatter", 1, [0]), 0.0, 0.1, 1, 0.9, 0.6, 0).equal(plain)  # no drop
    True
    """
    h, w = images.shape[-2:]
    layer = smooth(random.normal(1, h, w, mean=mean, deviation=deviation), sigma)
    if mud:
        cover = smooth((layer > threshold).float(), strength)
        return torch.lerp(images, tint(_MUD, images), F.threshold(cover, 0.8, 0)).clamp_(0, 1)
    drops = relief(F.threshold(layer, threshold, 0))
    return torch.addcmul(images, drops, tint(_WATER, images), value=strength).clamp_(0, 1)
