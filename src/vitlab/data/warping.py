"""Affine warps of a batch, one map per image, with Pillow's bilinear sampling.

Shape legend: n images, C channels, h w pixels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.data.rectangles import Rectangles

__all__ = ["warp", "zoom"]


def warp(images: Tensor, matrices: Tensor, fill: Tensor | None = None) -> Tensor:
    """Warp images: the output at (X, Y) is the input at (X', Y') = M · (X, Y, 1), bilinearly.

    Coordinates run from -1 to 1 between the outer edges of the outer pixels. A point outside the image gets the fill
    colour; a point inside within half a pixel of the edge gets the edge pixel, both as in Pillow.

    Args:
        images: (n, C, h, w) float.
        matrices: (n, 2, 3), the inverse maps M.
        fill: (C,) fill colour; None repeats the edge.

    Returns:
        (n, C, h, w).

    >>> picture = torch.arange(4.0).view(1, 1, 1, 4)
    >>> shift = torch.tensor([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]])  # a quarter of the width
    >>> warp(picture, shift, torch.tensor([9.0])).flatten()
    tensor([1., 2., 3., 9.])
    """
    height, width = images.shape[2:]
    y, x = _centres(height, images)[:, None], _centres(width, images)
    # Not a matrix product, which CUDA might compute in TF32 and which does not fuse.
    across, down = (m[:, 0, None, None] * x + m[:, 1, None, None] * y + m[:, 2, None, None] for m in matrices.unbind(1))
    sampled = _sample(images, across, down)
    if fill is None:
        return sampled
    inside = (across >= -1) & (across < 1) & (down >= -1) & (down < 1)
    return torch.where(inside[:, None], sampled, fill[:, None, None])


def zoom(images: Tensor, windows: Rectangles) -> Tensor:
    """Resize a window of each image to the whole image, bilinearly; pixels outside the window are not used.

    Args:
        images: (n, C, h, w) float.
        windows: one per image, no larger than the image.

    Returns:
        (n, C, h, w).

    >>> window = Rectangles(*(torch.tensor([float(side)]) for side in (0, 2, 1, 2)))
    >>> zoom(torch.tensor([[[[10.0, 20.0, 30.0, 40.0]]]]), window).flatten()
    tensor([30.0000, 32.5000, 37.5000, 40.0000])
    """
    height, width = images.shape[2:]
    down = _stretch(windows.tops, windows.heights, height)[:, :, None].expand(-1, -1, width)
    across = _stretch(windows.lefts, windows.widths, width)[:, None, :].expand(-1, height, -1)
    return _sample(images, across, down)


def _sample(images: Tensor, across: Tensor, down: Tensor) -> Tensor:
    grid = torch.stack((across, down), dim=3)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _stretch(starts: Tensor, lengths: Tensor, side: int) -> Tensor:
    """Returns the source coordinates in [-1, 1] of a window resized to `side`, (n, side), less its half-pixel rim."""
    middle, reach = (2 * starts + lengths) / side - 1, lengths / side
    positions = middle[:, None] + reach[:, None] * _centres(side, starts)
    rim = (reach - 1 / side)[:, None]
    return torch.minimum(torch.maximum(positions, middle[:, None] - rim), middle[:, None] + rim)


def _centres(side: int, like: Tensor) -> Tensor:
    """Returns the coordinates of the pixel centres in [-1, 1]."""
    return (2 * torch.arange(side, device=like.device, dtype=like.dtype) + 1) / side - 1
