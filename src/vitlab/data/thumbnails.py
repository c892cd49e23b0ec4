"""Small pictures of images, stored with measurements for reports.

Shape legend: B batch, C channels, h w pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


def thumbnails(pixels: Tensor, side: int) -> np.ndarray:
    """Scale pictures down.

    Args:
        pixels: (B, C, h, w) in [0, 1]. The first three channels are shown, or the first one in grey if there are fewer.
        side: maximum height and width in pixels.

    Returns:
        (B, h', w', 3) uint8.

    >>> thumbnails(torch.ones(1, 1, 8, 4), 4).shape
    (1, 4, 2, 3)
    """
    shown = pixels[:, : 3 if pixels.shape[1] >= 3 else 1]
    scale = min(1.0, side / max(pixels.shape[-2:]))
    small = (max(1, round(pixels.shape[-2] * scale)), max(1, round(pixels.shape[-1] * scale)))
    scaled = F.interpolate(shown.float(), small, mode="area").clamp(0, 1).mul(255).round()
    pictures: np.ndarray = scaled.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).to(torch.uint8).cpu().numpy()
    return pictures


def input_thumbnails(images: Tensor, batches: Any, side: int) -> np.ndarray:
    """Thumbnails of images in a model's input format.

    Args:
        images: (B, C, h, w), normalised.
        batches: their source; its `mean` and `std` undo the normalisation, else images are rescaled to [0, 1].
        side: maximum height and width in pixels.
    """
    if hasattr(batches, "mean") and hasattr(batches, "std"):
        mean, std = (torch.tensor(each, device=images.device).view(-1, 1, 1) for each in (batches.mean, batches.std))
        pixels = images * std + mean
    else:
        low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
        pixels = (images - low) / (high - low).clamp_min(1e-12)
    return thumbnails(pixels, side)
