"""Digital: low contrast, elastic distortion, large pixels, JPEG, and a shift in saturation.

Hendrycks and Dietterich, ICLR 2019, Sec. 3 and Appendix B; saturate is one of the four extra corruptions.

Shape legend: B images, C channels (1 or 3), h w pixels. Images are float32 in [0, 1].
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.corruptions.colour import saturate
from vitlab.corruptions.filters import smooth
from vitlab.corruptions.jpeg import real_codec, tensor_codec
from vitlab.corruptions.randomness import Randomness

__all__ = ["contrast", "elastic_transform", "jpeg_compression", "pixelate", "saturate"]


def contrast(images: Tensor, factor: float) -> Tensor:
    """m + factor · (x − m), with m the mean of each channel of each image.

    Args:
        images: (B, C, h, w). factor: of the contrast.

    Returns:
        (B, C, h, w).

    >>> contrast(torch.tensor([0.0, 1.0]).view(1, 1, 1, 2), 0.4).flatten().tolist()
    [0.3000..., 0.7000...]
    """
    # In double precision, because the order of the sum, and so its last bits, depends on threads.
    means = images.mean((2, 3), keepdim=True, dtype=torch.float64).float()
    return images.mul(factor).add_(means * (1 - factor)).clamp_(0, 1)


def elastic_transform(images: Tensor, random: Randomness, amount: float, sigma: float, jitter: float) -> Tensor:
    """Jelly: every pixel is read from a place that a smooth random field moves, after a random affine map.

    x(p + a · G_σ * U(−1, 1)), bilinear (Simard, Steinkraus and Platt, ICDAR 2003). For ImageNet the numbers and the
    lack of an affine map are those of imagecorruptions; the released ImageNet-C code has one, and larger fields at
    severities 1 and 2. For CIFAR everything is as released.

    Args:
        images: (B, C, h, w). random: of these images.
        amount: of the displacement, in heights. sigma: of the field's Gaussian, in sides along each axis.
        jitter: how far three points of the affine map may move, in heights.

    Returns:
        (B, C, h, w).

    >>> flat = torch.full((1, 3, 8, 8), 0.2)
    >>> moved = elastic_transform(flat, Randomness.of(0, "elastic_transform", 1, [0]), 0.06, 0.01, 0.08)
    >>> moved.sub(0.2).abs().max().item() < 1e-6
    True
    """
    h, w = images.shape[-2:]
    rows = torch.arange(h, device=images.device, dtype=torch.float32).view(1, h, 1)
    columns = torch.arange(w, device=images.device, dtype=torch.float32).view(1, 1, w)
    if jitter:
        images = _sample(images, *_affine(random, rows, columns, jitter * h), mirror=True)
    if amount:
        field = random.uniform(2, h, w, low=-1, high=1)
        field = smooth(field, (sigma * h, sigma * w), "reflect", truncate=3).mul_(amount * h)
        images = _sample(images, rows + field[:, 1], columns + field[:, 0])
    return images.clamp(0, 1)


def pixelate(images: Tensor, scale: float) -> Tensor:
    """Shrink by the mean over boxes to ⌊scale · h⌋ × ⌊scale · w⌋, and enlarge again without smoothing.

    A box holds the pixels whose middles lie in it, all with equal weights, as in PIL, and is rounded to 256 levels.

    Args:
        images: (B, C, h, w). scale: of the small image.

    Returns:
        (B, C, h, w).

    >>> pixelate(torch.tensor([0.2, 0.6, 0.0, 0.0]).view(1, 1, 1, 4), 0.5).flatten().tolist()
    [0.4000..., 0.4000..., 0.0, 0.0]
    """
    h, w = images.shape[-2:]
    # Rows lie together in memory and columns do not: turning the smaller image costs less than reading across.
    small = _box_means(images, max(1, int(h * scale))).transpose(2, 3).contiguous()
    small = _box_means(small, max(1, int(w * scale))).mul_(255).round_().div_(255)
    return _repeat(_repeat(small, w).transpose(2, 3).contiguous(), h)


def jpeg_compression(images: Tensor, quality: float) -> Tensor:
    """Through a JPEG file of that quality: libjpeg itself on a CPU, its arithmetic on whole batches elsewhere.

    Args:
        images: (B, C, h, w), rounded to 256 levels first. quality: 1 to 100.

    Returns:
        (B, C, h, w).

    >>> jpeg_compression(torch.zeros(1, 3, 9, 7), 25).abs().max().item()
    0.0
    """
    levels = images.mul(255).add_(0.5).to(torch.int16).to(torch.uint8)  # five times faster than at once
    codec = real_codec if images.device.type == "cpu" else tensor_codec
    return codec(levels, int(quality)).div_(255)


def _affine(random: Randomness, rows: Tensor, columns: Tensor, jitter: float) -> tuple[Tensor, Tensor]:
    """Where each pixel is read, (B, h, w) twice: the affine map that takes three jittered points back to a corner.

    The points lie around the middle, a third of the shorter side away; OpenCV inverts the map for us to sample.
    """
    h, w = rows.shape[1], columns.shape[2]
    reach, middle = min(h, w) // 3, torch.tensor([h // 2, w // 2], device=rows.device)
    signs = torch.tensor([[1, 1], [1, -1], [-1, -1]], device=rows.device)
    points = (middle + signs * reach).float()  # (3, 2), x and y
    moved = points + random.uniform(3, 2, stream=1, low=-jitter, high=jitter)
    ones = torch.ones_like(moved[..., :1])
    solved = _solve(torch.cat([moved, ones], dim=2), points)  # (B, 3, 2): [x y 1] of the result @ this = of the source
    x, y = (
        columns * solved[:, 0, k, None, None] + rows * solved[:, 1, k, None, None] + solved[:, 2, k, None, None]
        for k in range(2)
    )
    return y, x


def _solve(matrix: Tensor, values: Tensor) -> Tensor:
    """The solution of (B, 3, 3) @ ? = (3, 2) by Cramer's rule: cross products round alike in every batch."""
    a, b, c = matrix.unbind(1)
    inverse = torch.stack([torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)], dim=2)
    determinant = (a * inverse[..., 0]).sum(1).view(-1, 1, 1)
    return (inverse[..., None] * values).sum(2) / determinant


def _sample(images: Tensor, y: Tensor, x: Tensor, mirror: bool = False) -> Tensor:
    """Images (B, C, h, w) read bilinearly at (B, h, w), reflected about the rim, or about the last pixels (mirror)."""
    h, w = images.shape[-2:]
    if mirror:
        grid = torch.stack([x * (2 / max(w - 1, 1)) - 1, y * (2 / max(h - 1, 1)) - 1], dim=3)
    else:
        grid = torch.stack([(x + 0.5) * (2 / w) - 1, (y + 0.5) * (2 / h) - 1], dim=3)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=mirror)


def _box_means(images: Tensor, boxes: int) -> Tensor:
    """Rows (…, h, w) averaged to (…, boxes, w), with PIL's arithmetic: many middles fall on the edge of a box."""
    size = images.shape[2]
    scale = size / boxes
    middles = (np.arange(boxes) + 0.5) * scale
    starts = (middles - 0.5 * scale + 0.5).astype(np.int64)
    ends = (middles + 0.5 * scale + 0.5).astype(np.int64).clip(max=size)
    rows = starts + np.arange((ends - starts).max())[:, None]
    place = (rows - middles + 0.5) * (1 / scale)
    inside = (rows < ends) & (place > -0.5) & (place <= 0.5)
    total: Tensor | None = None
    for row, taken in zip(rows.clip(max=size - 1), inside, strict=True):
        part = images.index_select(2, torch.from_numpy(row).to(images.device))
        if not taken.all():
            part *= torch.from_numpy(taken[:, None].astype(np.float32)).to(images.device)
        total = part if total is None else total.add_(part)
    assert total is not None
    counts = torch.from_numpy(inside.sum(0)[:, None].astype(np.float32)).to(images.device)
    return total.div_(counts)


def _repeat(images: Tensor, size: int) -> Tensor:
    """Rows (…, boxes, w) repeated to (…, size, w): each new row is that of the box in which its middle lies."""
    boxes = images.shape[2]
    steps = np.full(size, boxes / size)
    steps[0] /= 2
    owners = steps.cumsum().astype(np.int64).clip(max=boxes - 1)  # PIL adds up too
    return images.index_select(2, torch.from_numpy(owners).to(images.device))
