"""Random textures: plasma clouds, and the ice of frosted windows, which replaces photographs.

Shape legend: B images, h w pixels, K directions of needles.
"""

from __future__ import annotations

from math import pi, sqrt

import torch
from torch import Tensor

from vitlab.corruptions.filters import enlarge, streak
from vitlab.corruptions.randomness import Randomness

#: Means and standard deviations of red, green and blue of the six photographs of the released code.
_PHOTOGRAPHS = (
    (0.305, 0.585, 0.650, 0.106, 0.065, 0.060),
    (0.787, 0.805, 0.841, 0.084, 0.087, 0.089),
    (0.787, 0.805, 0.841, 0.084, 0.087, 0.089),
    (0.540, 0.599, 0.648, 0.112, 0.112, 0.117),
    (0.441, 0.484, 0.528, 0.174, 0.170, 0.163),
    (0.280, 0.374, 0.410, 0.138, 0.168, 0.186),
)
_DIRECTIONS, _LENGTH = 3, 16  # of needles, in pixels
_CLOUDS, _GRAININESS = 1.3, 0.25  # standard deviations, relative to about 1 of the needles
_DRIFT = 0.28  # fraction of the standard deviation between crops of a photograph
_PATCHES, _SEEDS, _TURN, _KIND, _GRAIN, _LEVEL = range(6)  # streams of random numbers


def plasma(random: Randomness, side: int, decay: float, stream: int = 0) -> Tensor:
    """Returns (B, side, side) in [0, 1]: a fractal by the diamond-square algorithm, with periodic boundaries.

    Fournier, Fussell and Carpenter, "Computer rendering of stochastic models", CACM 1982. Every point is the mean of
    four points of the coarser scale plus noise, whose amplitude is divided by decay² per scale.

    Args:
        random: the randomness of the images.
        side: a power of two.
        decay: decay of the square root of the amplitude.
        stream: the stream of random numbers.

    >>> clouds = plasma(Randomness.of(0, "fog", 1, [0, 1]), 8, 2.0)
    >>> clouds.amin((1, 2)).tolist(), clouds.amax((1, 2)).tolist()
    ([0.0, 0.0], [1.0, 1.0])
    """
    noise = random.uniform(side, side, stream=stream, low=-1, high=1)
    heights = torch.zeros_like(noise)
    step, amplitude = side, 1e4
    while step >= 2:
        half = step // 2
        even, odd = slice(0, side, step), slice(half, side, step)
        corners = heights[:, even, even]
        across = corners + corners.roll(-1, 2)
        middles = (across + across.roll(-1, 1)).mul_(0.25).add_(noise[:, odd, odd], alpha=amplitude)
        heights[:, odd, odd] = middles
        above = across.add_(middles).add_(middles.roll(1, 1))
        heights[:, even, odd] = above.mul_(0.25).add_(noise[:, even, odd], alpha=amplitude)
        beside = (corners + corners.roll(-1, 1)).add_(middles).add_(middles.roll(1, 2))
        heights[:, odd, even] = beside.mul_(0.25).add_(noise[:, odd, even], alpha=amplitude)
        step, amplitude = half, amplitude / decay**2
    low, high = heights.amin((1, 2), keepdim=True), heights.amax((1, 2), keepdim=True)  # aminmax is ten times slower
    return heights.sub_(low).div_((high - low).clamp_(min=1e-9))


def ice(random: Randomness, h: int, w: int) -> Tensor:
    """Returns (B, 3, h, w): ice on a window, patches of needles with one direction per patch.

    Mean and variance by channel are those of a photograph, drawn from six.
    """
    field = _needles(random, h, w)
    # In double precision, because the order of summation, and so the last bits, depend on threads.
    mean, square = (x.mean((1, 2, 3), keepdim=True, dtype=torch.float64) for x in (field, field.square()))
    scale = sqrt(1 - _DRIFT**2) / (square - mean.square()).clamp_(min=1e-12).sqrt_()
    field = field.sub_(mean.float()).mul_(scale.float()).add_(random.normal(1, 1, 1, stream=_LEVEL, deviation=_DRIFT))
    kinds = random.uniform(1, stream=_KIND, high=len(_PHOTOGRAPHS))[:, 0].long()
    colours = torch.tensor(_PHOTOGRAPHS, device=field.device)[kinds].view(-1, 6, 1, 1)
    return torch.addcmul(colours[:, :3], field, colours[:, 3:]).clamp_(0, 1)


def _needles(random: Randomness, h: int, w: int) -> Tensor:
    """Returns (B, 1, h, w): motion-blurred random points along K directions, one per patch, added to smooth clouds."""
    patches = random.normal(_DIRECTIONS + 1, 9, 9, stream=_PATCHES)
    patches, clouds = enlarge(patches, (h, w)).split((_DIRECTIONS, 1), dim=1)
    # 1 in the patches of a direction, 0 in those of others, with a transition of a fraction of a pixel.
    inside = (patches - patches.amax(1, keepdim=True)).mul_(1e4).add_(1).clamp_(min=0)
    directions = torch.arange(_DIRECTIONS, device=clouds.device)
    turns = random.uniform(1, stream=_TURN, high=pi) + directions * (pi / _DIRECTIONS)
    needles = streak(_seeds(random, h, w).view(-1, 1, h, w), turns.view(-1), _LENGTH // 2, 0.6 * _LENGTH)
    field: Tensor = clouds * _CLOUDS + random.normal(1, h, w, stream=_GRAIN, deviation=_GRAININESS)
    for each in needles.view_as(inside).mul_(inside).split(1, dim=1):
        field.add_(each, alpha=_LENGTH * 0.6)
    return field


def _seeds(random: Randomness, h: int, w: int) -> Tensor:
    """Returns (B, K, h, w): 1.0 for one pixel in 22 per direction; its last two random bits select the direction."""
    numbers = random.halves(1, h, w, stream=_SEEDS)
    chosen = (numbers - 21000).clamp_(0, 1)
    label = (numbers.bitwise_and_(3) + 1).mul_(chosen).float()  # 0, or 1 + the direction
    directions = torch.arange(1.0, _DIRECTIONS + 1, device=label.device).view(1, -1, 1, 1)
    return (label - directions).abs_().neg_().add_(1).clamp_(min=0)
