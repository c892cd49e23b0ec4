"""Spatial smoothing: a small blur at the end of a stage, which averages neighbouring points of a feature map.

Shape legend: B batch, N tokens, D channels, h w grid.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from vitlab.core.anatomy import TokenLayout
from vitlab.modules.identity_init import blend, initial_weight
from vitlab.modules.map_part import MapPart

__all__ = ["SpatialSmoothing"]


class SpatialSmoothing(MapPart):
    """A 2×2 box blur with stride 1.

    y_{i,j} = (x_{i,j} + x_{i+1,j} + x_{i,j+1} + x_{i+1,j+1}) / 4 ("How Do Vision Transformers Work?", Fig. 3a, App. B).
    The padding is not published. Repeating the last row and column is our choice: size and constant maps are unchanged.

    Args:
        layout: grid and prefix; prefix tokens are unchanged.
        identity_init: multiply the change x → y by one learned weight that starts at 0, for trained weights.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> SpatialSmoothing(TokenLayout((1, 3)))(torch.tensor([[[0.0], [2.0], [6.0]]])).flatten()
    tensor([1., 4., 6.])
    """

    default_seam: ClassVar[str] = "stage.out"
    weight: nn.Parameter | None

    def __init__(self, layout: TokenLayout, *, identity_init: bool = False) -> None:
        super().__init__(layout)
        self.register_parameter("weight", initial_weight(identity_init))

    def on_map(self, x: Tensor) -> Tensor:
        """(B, h, w, D) -> (B, h, w, D)."""
        below = torch.cat((x[:, 1:], x[:, -1:]), dim=1)
        rows = 0.5 * (x + below)
        right = torch.cat((rows[:, :, 1:], rows[:, :, -1:]), dim=2)
        return blend(x, 0.5 * (rows + right), self.weight)
