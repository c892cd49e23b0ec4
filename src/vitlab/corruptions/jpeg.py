"""JPEG compression without the entropy coder, which is lossless: only the rounding is computed.

ITU-T T.81 (1992): Annex A for the cosine transform, Annex K for the tables; chroma at half the resolution as in
JFIF files. `real_codec` calls libjpeg, on a CPU; `tensor_codec` computes the same steps on batches, on any device.

Shape legend: B images, C channels (1 or 3), h w pixels, 8 × 8 blocks.
"""

from __future__ import annotations

from functools import lru_cache
from math import cos, pi, sqrt

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.io import decode_jpeg, encode_jpeg

_LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)
_TO_YCBCR = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))


def real_codec(levels: Tensor, quality: int) -> Tensor:
    """Encode and decode every image as JPEG in memory: (B, C, h, w) uint8 on a CPU to the same.

    This is libjpeg with its defaults, bitwise equal to PIL.
    """
    results = torch.empty(levels.shape, dtype=torch.uint8, device="cpu")
    # The codec needs channels last. Its own conversion is three times slower.
    for image, result in zip(torch.stack(levels.unbind(1), dim=-1), results, strict=True):
        result.copy_(decode_jpeg(encode_jpeg(image.permute(2, 0, 1), quality)))
    return results


def tensor_codec(levels: Tensor, quality: int) -> Tensor:
    """The lossy steps of JPEG on a batch: colour conversion, half-size chroma, cosine transform, quantisation.

    Within one level of libjpeg for nearly all pixels: libjpeg rounds its transforms to integers, this code does not.

    Args:
        levels: (B, C, h, w) uint8, on any device.
        quality: 1 to 100.

    Returns:
        (B, C, h, w) uint8.

    >>> grey = torch.full((1, 3, 10, 9), 128, dtype=torch.uint8)
    >>> tensor_codec(grey, 25).equal(grey)
    True
    """
    # Double precision, so that the error of a batched product on a GPU does not change the rounding of a coefficient.
    images = levels.double()
    if images.shape[1] == 1:
        return _blocks_round_trip(images, quality_table(_LUMINANCE, quality)).to(torch.uint8)
    size = images.shape[-2:]
    mix = torch.tensor(_TO_YCBCR, device=images.device, dtype=torch.float64)
    planes = torch.einsum("ij,bjhw->bihw", mix, images).round_()  # chroma around 0
    light = _blocks_round_trip(planes[:, :1], quality_table(_LUMINANCE, quality))
    chroma = F.avg_pool2d(_pad_to(planes[:, 1:], 2), 2)
    chroma[..., ::2] += 0.25  # libjpeg alternates between rounding means of four down and up
    chroma[..., 1::2] += 0.5
    chroma = chroma.floor_() + 128
    chroma = _blocks_round_trip(chroma, quality_table(_CHROMINANCE, quality)) - 128
    chroma = F.interpolate(chroma, scale_factor=2, mode="bilinear", align_corners=False)[..., : size[0], : size[1]]
    blue, red = chroma.round_().split(1, dim=1)
    green = light - 0.344136 * blue - 0.714136 * red
    return torch.cat([light + 1.402 * red, green, light + 1.772 * blue], dim=1).round_().clamp_(0, 255).to(torch.uint8)


@lru_cache(maxsize=32)
def quality_table(table: tuple[tuple[int, ...], ...], quality: int) -> Tensor:
    """Returns (8, 8): a table of Annex K scaled as in libjpeg: by 5000 / q % below quality 50, else by 200 − 2 q %.

    >>> quality_table(_LUMINANCE, 50)[0, :3].tolist(), quality_table(_LUMINANCE, 25)[0, :3].tolist()
    ([16.0, 11.0, 10.0], [32.0, 22.0, 20.0])
    """
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    scaled = (np.asarray(table) * percent + 50) // 100
    return torch.from_numpy(scaled.clip(1, 255).astype(np.float64))


def _blocks_round_trip(planes: Tensor, table: Tensor) -> Tensor:
    """Cosine transform, quantisation and inverse of planes (B, c, h, w) in 0 … 255, padded to blocks by their edges."""
    h, w = planes.shape[-2:]
    padded = _pad_to(planes, 8) - 128
    basis, width = _cosines(str(planes.device)), padded.shape[-1]
    # Rows of blocks, (…, 8, width): a batched product along the columns, a plain one along the rows.
    coefficients = (basis @ padded.view(-1, 8, width)).view(-1, 8) @ basis.T
    rows = table.to(planes.device).view(8, 1, 8)
    coefficients = coefficients.view(-1, 8, width // 8, 8).div_(rows).round_().mul_(rows)
    restored = basis.T @ (coefficients.view(-1, 8) @ basis).view(-1, 8, width)
    return restored.view(padded.shape)[..., :h, :w].add(128).round_().clamp_(0, 255)


@lru_cache(maxsize=4)
def _cosines(device: str) -> Tensor:
    """Returns (8, 8): the orthonormal cosine basis, one function per row."""
    rows = [[cos((2 * x + 1) * u * pi / 16) * (sqrt(0.125) if u == 0 else 0.5) for x in range(8)] for u in range(8)]
    return torch.tensor(rows, dtype=torch.float64, device=device)


def _pad_to(planes: Tensor, multiple: int) -> Tensor:
    h, w = planes.shape[-2:]
    return F.pad(planes, (0, -w % multiple, 0, -h % multiple), mode="replicate")
