"""The linear filters that corruptions share: Gaussian smoothing, streaks along a line, zooming into the middle.

Each output value is summed in an order that does not depend on the batch, so that batch size does not change a bit.

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

#: How an image goes on past its edge: a b c | c c (nearest), c b a (reflect), b a (mirror).
Border = Literal["nearest", "reflect", "mirror"]

_BAND = 32  # rows that one matrix product makes: its cost per pixel then depends on the kernel, not on the image


def extend(images: Tensor, rows: int, columns: int, border: Border) -> Tensor:
    """Images (B, C, h, w) with `rows` more above and below and `columns` more left and right; more than h or w is fine.

    >>> extend(torch.tensor([1.0, 2.0, 3.0]).view(1, 1, 1, 3), 0, 4, "mirror").flatten().tolist()
    [1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 3.0]
    """
    h, w = images.shape[-2:]
    if border == "nearest" or (border == "mirror" and rows < h and columns < w):  # torch's own, five times faster
        return F.pad(images, (columns, columns, rows, rows), "replicate" if border == "nearest" else "reflect")
    for axis, amount in ((-2, rows), (-1, columns)):
        if amount:
            places = _places(amount, images.shape[axis], border, str(images.device))
            images = images.index_select(axis, places)
    return images


def fold(positions: np.ndarray, size: int, border: Border) -> np.ndarray:
    """Positions on an endless line, brought back to 0 … size − 1.

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
    """Gaussian smoothing, exp(−d² / 2σ²) cut at `truncate` σ, along both axes.

    Args:
        images: (B, C, h, w). sigma: of both axes, or (of rows, of columns); 0 does nothing.
        border: how images go on. truncate: radius of the kernel in σ, rounded to pixels.

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
    """exp(−k² / 2σ²) for k = −radius … radius, over their sum.

    >>> [round(weight, 3) for weight in gaussian_weights(0.5, 1)]
    [0.107, 0.787, 0.107]
    """
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    return tuple((weights / weights.sum()).tolist())


def streak(images: Tensor, angle: Tensor, radius: int, sigma: float) -> Tensor:
    """Motion along a line: Σ_i k_i x(p + round(i · (cos, sin))), k_i ∝ exp(−i² / 2σ²), i = 0 … 2 · radius.

    The image goes on past its edge with its edge. imagecorruptions ends the sum there, which only images of fewer
    than 2 · radius + 1 pixels notice: they darken, ours do not.

    Args:
        images: (B, C, h, w). angle: (B,) in radians, measured clockwise from the right. radius, sigma: of the kernel.

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
    add_up = _shift_by_slices if images.device.type == "cpu" else _shift_by_runs
    return add_up(
        extend(images, reach, reach, "nearest"), down + reach, right + reach, (weights / weights.sum()).tolist()
    )


def zoom_in(images: Tensor, factor: float) -> Tensor:
    """The middle of an image, enlarged bilinearly to at least the whole: (B, C, h, w) to (B, C, ≥ h, ≥ w).

    Corners fall on corners. Trim the result to (h, w) from its top left, as the reference does.

    >>> zoom_in(torch.arange(4.0).view(1, 1, 1, 4), 2.0)[..., 0, :].flatten().tolist()
    [1.0, 1.3333..., 1.6666..., 2.0]
    """
    h, w = images.shape[-2:]
    height, width = ceil(h / factor), ceil(w / factor)
    top, left = (h - height) // 2, (w - width) // 2
    size = (max(h, round(height * factor)), max(w, round(width * factor)))
    middle = images[..., top : top + height, left : left + width]
    return middle if size == (height, width) else enlarge(middle, size)


def enlarge(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear interpolation (B, C, h, w) to (B, C, *size), corners on corners.

    Planes go in one by one, (B · C, 1, h, w): with more channels torch chooses a kernel by the number of threads, and
    their last bits differ. It is also twice as fast. On a CPU few pixels become many faster by an axis at a time.

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
    """(target,) thrice: the pixels before and after each new one, and its way from the one to the other."""
    places = np.linspace(0, size - 1, target) if target > 1 else np.zeros(1)
    before = places.astype(np.int64).clip(max=size - 1)
    after = (before + 1).clip(max=size - 1)
    return torch.from_numpy(before), torch.from_numpy(after), torch.from_numpy((places - before).astype(np.float32))


def _shift_by_slices(padded: Tensor, top: Tensor, left: Tensor, weights: list[float]) -> Tensor:
    """Σ_i weights[i] of the window of each image at top[:, i], left[:, i], (B, T) each: a slice at a time."""
    reach = len(weights) - 1
    h, w = padded.shape[-2] - 2 * reach, padded.shape[-1] - 2 * reach
    total = padded.new_zeros(*padded.shape[:2], h, w)
    for image, result, ys, xs in zip(padded, total, top.tolist(), left.tolist(), strict=True):
        for y, x, weight in zip(ys, xs, weights, strict=True):
            result.add_(image[:, y : y + h, x : x + w], alpha=weight)
    return total


def _shift_by_runs(padded: Tensor, top: Tensor, left: Tensor, weights: list[float]) -> Tensor:
    """The same for the whole batch at once: each row of the result is a run of w values somewhere in `padded`."""
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

    On a CPU a banded matrix with the border in it beats convolution five times; on a GPU the depthwise kernel of torch
    sums each value in one thread, where cuDNN would choose an algorithm by the batch.
    """
    product = _banded_product if images.device.type == "cpu" else _depthwise
    return product(images, weights, axis, border)


def _depthwise(images: Tensor, weights: tuple[float, ...], axis: int, border: Border) -> Tensor:
    radius = len(weights) // 2
    shape = (len(weights), 1) if axis == -2 else (1, len(weights))
    padded = extend(images, radius if axis == -2 else 0, radius if axis == -1 else 0, border)
    # Every plane is a channel, and one alone is taken twice: torch has this kernel for two channels or more.
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
def _places(amount: int, size: int, border: Border, device: str) -> Tensor:
    """(size + 2 · amount,): the positions that stand in for those from −amount on."""
    return torch.from_numpy(fold(np.arange(-amount, size + amount), size, border)).to(device)


def _banded_product(images: Tensor, weights: tuple[float, ...], axis: int, border: Border) -> Tensor:
    size, radius = images.shape[axis], len(weights) // 2
    # Products of few rows take another kernel in some batches: in double precision the difference rounds away.
    precision = torch.float64 if min(images.shape[-2:]) < _BAND // 2 else torch.float32
    planes = images.reshape(-1, *images.shape[-2:]).to(precision)
    matrix = _band(size, weights, border).to(precision).expand(len(planes), size, size)
    result = torch.empty_like(planes)
    for stop in range(min(_BAND, size), size + _BAND, _BAND):
        # The last band overlaps the one before: a narrow rest would take another kernel in some batches.
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
    """(size, size): row i holds the weights around column i, those past the border folded back."""
    matrix, rows, radius = np.zeros((size, size), dtype=np.float32), np.arange(size), len(weights) // 2
    for k, weight in enumerate(weights):
        np.add.at(matrix, (rows, fold(rows + k - radius, size, border)), weight)
    return torch.from_numpy(matrix)
