"""Digital: low contrast, elastic transform, pixelation, JPEG, and a change of saturation.

Hendrycks and Dietterich, ICLR 2019, Sec. 3 and Appendix B; saturate is one of the four extra corruptions.

Shape legend: B images, C channels (1 or 3), h w pixels. Images are float32 in [0, 1], levels uint8.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.corruptions.boxes import boxes
from vitlab.corruptions.colour import saturate
from vitlab.corruptions.filters import smooth
from vitlab.corruptions.jpeg import real_codec, tensor_codec
from vitlab.corruptions.randomness import Randomness

__all__ = ["contrast", "elastic_transform", "jpeg_compression", "pixelate", "saturate"]


def contrast(images: Tensor, factor: float) -> Tensor:
    """m + factor · (x − m), where m is the mean of each channel of each image.

    Args:
        images: (B, C, h, w).
        factor: factor of the contrast.

    Returns:
        (B, C, h, w).

    >>> contrast(torch.tensor([0.0, 1.0]).view(1, 1, 1, 2), 0.4).flatten().tolist()
    [0.3000..., 0.7000...]
    """
    # In double precision, because the order of summation, and so the last bits, depend on threads.
    means = images.mean((2, 3), keepdim=True, dtype=torch.float64).float()
    return images.mul(factor).add_(means * (1 - factor)).clamp_(0, 1)


def elastic_transform(images: Tensor, random: Randomness, amount: float, sigma: float, jitter: float) -> Tensor:
    """Displace every pixel by a smooth random field, after a random affine map.

    x(p + a · G_σ * U(−1, 1)), bilinear (Simard, Steinkraus and Platt, ICDAR 2003). The sets `imagenet` and `cifar` are
    as released. The set `imagecorruptions` has no affine map and other displacements, as in that package. Do not
    compute mCE with it: AlexNet's errors were measured with the released transform.

    Args:
        images: (B, C, h, w).
        random: the randomness of these images.
        amount: scale of the displacement, as a fraction of the height.
        sigma: σ of the smoothing of the field, as a fraction of the side along each axis.
        jitter: largest displacement of the three points of the affine map, as a fraction of the height.

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


def pixelate(levels: Tensor, scale: float) -> Tensor:
    """Downsample by the mean over boxes to ⌊scale · h⌋ × ⌊scale · w⌋, and upsample by repetition.

    A box contains the pixels whose centres are in it, with equal weights, as in PIL. Means are rounded to 256 levels.

    Args:
        levels: (B, C, h, w) uint8.
        scale: relative size of the downsampled image.

    Returns:
        (B, C, h, w) uint8.

    >>> pixelate(torch.tensor([20, 60, 0, 0], dtype=torch.uint8).view(1, 1, 1, 4), 0.5).flatten().tolist()
    [40, 40, 0, 0]
    """
    rows, columns = (boxes(size, max(1, int(size * scale)), str(levels.device)) for size in levels.shape[-2:])
    # Rows are contiguous in memory: transposing the smaller image costs less than strided access.
    small = columns.means(rows.means(levels).transpose(2, 3).contiguous()).add_(0.5).to(torch.uint8)
    return rows.repeat(columns.repeat(small).transpose(2, 3).contiguous())


def jpeg_compression(levels: Tensor, quality: float) -> Tensor:
    """JPEG compression: libjpeg on a CPU, an equivalent computation on batches on other devices.

    Args:
        levels: (B, C, h, w) uint8.
        quality: 1 to 100.

    Returns:
        (B, C, h, w) uint8.

    >>> jpeg_compression(torch.zeros(1, 3, 9, 7, dtype=torch.uint8), 25).max().item()
    0
    """
    codec = real_codec if levels.device.type == "cpu" else tensor_codec
    return codec(levels, int(quality))


def _affine(random: Randomness, rows: Tensor, columns: Tensor, jitter: float) -> tuple[Tensor, Tensor]:
    """Returns the source rows and columns of each pixel, (B, h, w) each: an affine map from three jittered points.

    The points are around the centre, a third of the shorter side away. The map is from the result to the source; OpenCV
    inverts the opposite map.
    """
    h, w = rows.shape[1], columns.shape[2]
    reach, centre = min(h, w) // 3, torch.tensor([h // 2, w // 2], device=rows.device)
    signs = torch.tensor([[1, 1], [1, -1], [-1, -1]], device=rows.device)
    points = (centre + signs * reach).float()  # (3, 2), x and y
    moved = points + random.uniform(3, 2, stream=1, low=-jitter, high=jitter)
    ones = torch.ones_like(moved[..., :1])
    solved = _solve(torch.cat([moved, ones], dim=2), points)  # (B, 3, 2): [x y 1] of the result @ this = of the source
    x, y = (
        columns * solved[:, 0, k, None, None] + rows * solved[:, 1, k, None, None] + solved[:, 2, k, None, None]
        for k in range(2)
    )
    return y, x


def _solve(matrix: Tensor, values: Tensor) -> Tensor:
    """Solve (B, 3, 3) @ x = (3, 2) by Cramer's rule, whose rounding does not depend on the batch."""
    a, b, c = matrix.unbind(1)
    inverse = torch.stack([torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)], dim=2)
    determinant = (a * inverse[..., 0]).sum(1).view(-1, 1, 1)
    return (inverse[..., None] * values).sum(2) / determinant


def _sample(images: Tensor, y: Tensor, x: Tensor, mirror: bool = False) -> Tensor:
    """Sample images (B, C, h, w) bilinearly at (B, h, w), reflected at the edge, or at the last pixels (mirror)."""
    h, w = images.shape[-2:]
    if mirror:
        grid = torch.stack([x * (2 / max(w - 1, 1)) - 1, y * (2 / max(h - 1, 1)) - 1], dim=3)
    else:
        grid = torch.stack([(x + 0.5) * (2 / w) - 1, (y + 0.5) * (2 / h) - 1], dim=3)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=mirror)
