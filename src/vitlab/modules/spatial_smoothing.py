"""Spatial smoothing: a small blur at the end of a stage, which averages neighbouring points of a feature map.

Shape legend: B batch, N tokens, D channels, h w grid.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from vitlab.modules.map_part import MapPart

__all__ = ["SpatialSmoothing"]


class SpatialSmoothing(MapPart):
    """A 2×2 box blur with stride 1.

    y_{i,j} = (x_{i,j} + x_{i+1,j} + x_{i,j+1} + x_{i+1,j+1}) / 4 ("How Do Vision Transformers Work?", Fig. 3a, App. B).
    The padding is not published. Repeating the last row and column is our choice: size and constant maps are unchanged.

    Args:
        layout: grid and prefix; prefix tokens are unchanged.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> from vitlab.core.anatomy import TokenLayout
    >>> SpatialSmoothing(TokenLayout((1, 3)))(torch.tensor([[[0.0], [2.0], [6.0]]])).flatten()
    tensor([1., 4., 6.])
    """

    default_seam: ClassVar[str] = "stage.out"

    def on_map(self, x: Tensor) -> Tensor:
        """(B, h, w, D) -> (B, h, w, D)."""
        below = torch.cat((x[:, 1:], x[:, -1:]), dim=1)
        rows = 0.5 * (x + below)
        right = torch.cat((rows[:, :, 1:], rows[:, :, -1:]), dim=2)
        return 0.5 * (rows + right)
