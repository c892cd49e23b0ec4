"""Linear filters shared by the corruptions: Gaussian smoothing, motion along a line, and zoom into the centre.

The order of summation of each output value does not depend on the batch, so results are bitwise independent of it.

Shape legend: B images, C channels, h w pixels, T taps of a kernel.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

#: How an image is extended beyond its edge: a b c | c c (nearest), c b a (reflect), b a (mirror).
Border = Literal["nearest", "reflect", "mirror"]

_BAND = 32  # rows per matrix product, so that its cost per pixel depends on the kernel and not on the image


def extend(images: Tensor, rows: int, columns: int, border: Border) -> Tensor:
    """Pad images (B, C, h, w) by `rows` above and below and `columns` left and right; these may exceed h and w.

    >>> extend(torch.tensor([1.0, 2.0, 3.0]).view(1, 1, 1, 3), 0, 4, "mirror").flatten().tolist()
    [1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 3.0]
    """
    h, w = images.shape[-2:]
    if border == "nearest" or (border == "mirror" and rows < h and columns < w):  # torch's padding is five times faster
        return F.pad(images, (columns, columns, rows, rows), "replicate" if border == "nearest" else "reflect")
    for axis, amount in ((-2, rows), (-1, columns)):
        if amount:
            positions = _positions(amount, images.shape[axis], border, str(images.device))
            images = images.index_select(axis, positions)
    return images


def fold(positions: np.ndarray, size: int, border: Border) -> np.ndarray:
    """Map positions on an infinite line to 0 … size − 1.

    >>> fold(np.arange(-2, 5), 3, "mirror").tolist(), fold(np.arange(-2, 5), 3, "reflect").tolist()
    ([2, 1, 0, 1, 2, 1, 0], [1, 0, 0, 1, 2, 2, 1])
    """
    if border == "nearest" or size == 1:
        return positions.clip(0, size - 1)
    period, last = (2 * size, 2 * size - 1) if border == "reflect" else (2 * size - 2, 2 * size - 2)
    positions = positions % period
    return np.where(positions < size, positions, last - positions)


def smooth(
    images: Tensor, sigma: float | tuple[float, float], border: Border = "nearest", truncate: float = 4.0
) -> Tensor:
    """Gaussian smoothing along both axes, exp(−d² / 2σ²) truncated at `truncate` σ.

    Args:
        images: (B, C, h, w).
        sigma: σ of both axes, or (of rows, of columns); 0 is the identity.
        border: how images are extended.
        truncate: radius of the kernel in σ, rounded to pixels.

    >>> spot = torch.zeros(1, 1, 5, 5)
    >>> spot[..., 2, 2] = 1
    >>> round(smooth(spot, 0.5).sum().item(), 4), smooth(spot, 0.0).equal(spot)
    (1.0, True)
    """
    sigmas = sigma if isinstance(sigma, tuple) else (sigma, sigma)
    for axis, each in zip((-2, -1), sigmas, strict=True):
        radius = int(truncate * each + 0.5)
        if radius:
            images = _correlate(images, gaussian_weights(each, radius), axis, border)
    return images


def gaussian_weights(sigma: float, radius: int) -> tuple[float, ...]:
    """Returns exp(−k² / 2σ²) for k = −radius … radius, divided by their sum.

    >>> [round(weight, 3) for weight in gaussian_weights(0.5, 1)]
    [0.107, 0.787, 0.107]
    """
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    return tuple((weights / weights.sum()).tolist())


def streak(images: Tensor, angle: Tensor, radius: int, sigma: float) -> Tensor:
    """Motion blur along a line: Σ_i k_i x(p + round(i · (cos, sin))), k_i ∝ exp(−i² / 2σ²), i = 0 … 2 · radius.

    The image is extended by its edge. imagecorruptions ends the sum there, which differs only for images of fewer than
    2 · radius + 1 pixels: they become darker, here they do not.

    Args:
        images: (B, C, h, w).
        angle: (B,) in radians, clockwise from the right.
        radius, sigma: radius and σ of the kernel.

    Returns:
        (B, C, h, w).

    >>> dot = torch.tensor([[[[0.0, 0.0, 1.0, 0.0]]]])
    >>> streak(dot, torch.zeros(1), radius=1, sigma=1.0).flatten().tolist()
    [0.0776..., 0.3482..., 0.5740..., 0.0]
    """
    reach = 2 * radius
    steps = torch.arange(reach + 1, device=images.device, dtype=torch.float64)
    down, right = (torch.ceil(f(angle.double())[:, None] * steps - 0.5).long() for f in (torch.sin, torch.cos))
    weights = np.exp(-0.5 * (np.arange(reach + 1) / sigma) ** 2)
    sum_shifted = _shift_by_slices if images.device.type == "cpu" else _shift_by_runs
    return sum_shifted(
        extend(images, reach, reach, "nearest"), down + reach, right + reach, (weights / weights.sum()).tolist()
    )


def zoom_in(images: Tensor, factor: float) -> Tensor:
    """Enlarge the centre of an image bilinearly to at least its size: (B, C, h, w) to (B, C, ≥ h, ≥ w).

    Corners are aligned. Crop the result to (h, w) at the top left, as the reference does.

    >>> zoom_in(torch.arange(4.0).view(1, 1, 1, 4), 2.0)[..., 0, :].flatten().tolist()
    [1.0, 1.3333..., 1.6666..., 2.0]
    """
    h, w = images.shape[-2:]
    height, width = ceil(h / factor), ceil(w / factor)
    top, left = (h - height) // 2, (w - width) // 2
    size = (max(h, round(height * factor)), max(w, round(width * factor)))
    centre = images[..., top : top + height, left : left + width]
    return centre if size == (height, width) else enlarge(centre, size)


def enlarge(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear interpolation of (B, C, h, w) to (B, C, *size), with aligned corners.

    The channels are processed as (B · C, 1, h, w): with more channels torch selects a kernel by the number of threads,
    and the last bits differ. This is also twice as fast. On a CPU, large factors are faster one axis at a time.

    >>> enlarge(torch.tensor([[[[0.0, 1.0]]]]), (1, 3)).flatten().tolist()
    [0.0, 0.5, 1.0]
    """
    if images.device.type == "cpu" and 16 * images.shape[-2] * images.shape[-1] <= size[0] * size[1]:
        for axis, target in ((-1, size[1]), (-2, size[0])):
            before, after, weight = _between(images.shape[axis], target)
            weight = weight if axis == -1 else weight[:, None]
            images = torch.lerp(images.index_select(axis, before), images.index_select(axis, after), weight)
        return images
    planes = images.reshape(-1, 1, *images.shape[-2:])
    planes = F.interpolate(planes, size, mode="bilinear", align_corners=True)
    return planes.view(*images.shape[:2], *size)


@lru_cache(maxsize=32)
def _between(size: int, target: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns three tensors (target,): the pixels before and after each new pixel, and the weight of the latter."""
    positions = np.linspace(0, size - 1, target) if target > 1 else np.zeros(1)
    before = positions.astype(np.int64).clip(max=size - 1)
    after = (before + 1).clip(max=size - 1)
    return torch.from_numpy(before), torch.from_numpy(after), torch.from_numpy((positions - before).astype(np.float32))


def _shift_by_slices(padded: Tensor, top: Tensor, left: Tensor, weights: list[float]) -> Tensor:
    """Returns Σ_i weights[i] · window of each image at top[:, i], left[:, i], (B, T) each, slice by slice."""
    reach = len(weights) - 1
    h, w = padded.shape[-2] - 2 * reach, padded.shape[-1] - 2 * reach
    total = padded.new_zeros(*padded.shape[:2], h, w)
    for image, result, ys, xs in zip(padded, total, top.tolist(), left.tolist(), strict=True):
        for y, x, weight in zip(ys, xs, weights, strict=True):
            result.add_(image[:, y : y + h, x : x + w], alpha=weight)
    return total


def _shift_by_runs(padded: Tensor, top: Tensor, left: Tensor, weights: list[float]) -> Tensor:
    """As `_shift_by_slices`, for the whole batch: each row of the result is a run of w values in `padded`."""
    (batch, channels, height, width), reach = padded.shape, len(weights) - 1
    h, w = height - 2 * reach, width - 2 * reach
    runs = padded.view(-1).as_strided((padded.numel() - w + 1, w), (1, 1))
    planes = torch.arange(batch * channels, device=padded.device).view(batch, channels, 1) * (height * width)
    starts = planes + torch.arange(h, device=padded.device) * width
    total = padded.new_zeros(batch, channels, h, w)
    for offset, weight in zip((top * width + left).T, weights, strict=True):
        taken = runs.index_select(0, (starts + offset[:, None, None]).view(-1))
        total.add_(taken.view_as(total), alpha=weight)
    return total


def _correlate(images: Tensor, weights: tuple[float, ...], axis: int, border: Border) -> Tensor:
    """Σ_k weights[k] x(p + k − radius) along an axis.

    On a CPU a banded matrix that includes the border is five times faster than convolution. On a GPU the depthwise
    kernel of torch sums each value in one thread, whereas cuDNN selects an algorithm by the batch.
    """
    product = _banded_product if images.device.type == "cpu" else _depthwise
    return product(images, weights, axis, border)


def _depthwise(images: Tensor, weights: tuple[float, ...], axis: int, border: Border) -> Tensor:
    radius = len(weights) // 2
    shape = (len(weights), 1) if axis == -2 else (1, len(weights))
    padded = extend(images, radius if axis == -2 else 0, radius if axis == -1 else 0, border)
    # Every plane is a channel. A single plane is duplicated, because this kernel needs two or more channels.
    planes = padded.reshape(1, -1, *padded.shape[-2:])
    planes = planes if planes.shape[1] != 1 else planes.expand(1, 2, -1, -1)
    kernel = _kernel(weights, str(images.device)).view(1, 1, *shape).expand(planes.shape[1], 1, *shape)
    with torch.backends.cudnn.flags(enabled=False):
        result = F.conv2d(planes, kernel.contiguous(), groups=planes.shape[1])
    return result.view(-1, *images.shape[1:])[: len(images)]


@lru_cache(maxsize=64)
def _kernel(weights: tuple[float, ...], device: str) -> Tensor:
    return torch.tensor(weights, device=device)


@lru_cache(maxsize=64)
def _positions(amount: int, size: int, border: Border, device: str) -> Tensor:
    """Returns (size + 2 · amount,): the source positions of −amount … size + amount − 1."""
    return torch.from_numpy(fold(np.arange(-amount, size + amount), size, border)).to(device)


def _banded_product(images: Tensor, weights: tuple[float, ...], axis: int, border: Border) -> Tensor:
    size, radius = images.shape[axis], len(weights) // 2
    # Products of few rows use another kernel for some batches. In double precision the difference is rounded away.
    precision = torch.float64 if min(images.shape[-2:]) < _BAND // 2 else torch.float32
    planes = images.reshape(-1, *images.shape[-2:]).to(precision)
    matrix = _band(size, weights, border).to(precision).expand(len(planes), size, size)
    result = torch.empty_like(planes)
    for stop in range(min(_BAND, size), size + _BAND, _BAND):
        # The last band overlaps the previous one: a narrow remainder would use another kernel for some batches.
        stop = min(stop, size)
        start = max(0, stop - _BAND)
        near = slice(max(0, start - radius), min(size, stop + radius))
        part = matrix[:, start:stop, near]
        if axis == -2:
            result[:, start:stop] = torch.bmm(part, planes[:, near])
        else:
            result[..., start:stop] = torch.bmm(planes[..., near], part.transpose(1, 2))
    return result.float().view_as(images)


@lru_cache(maxsize=32)
def _band(size: int, weights: tuple[float, ...], border: Border) -> Tensor:
    """Returns (size, size): row i has the weights around column i, with those beyond the border folded back."""
    matrix, rows, radius = np.zeros((size, size), dtype=np.float32), np.arange(size), len(weights) // 2
    for k, weight in enumerate(weights):
        np.add.at(matrix, (rows, fold(rows + k - radius, size, border)), weight)
    return torch.from_numpy(matrix)
