"""Base class of parts that process the tokens as a map.

Shape legend: B batch, N tokens, D channels, h w grid.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitlab.core.anatomy import TokenLayout

__all__: list[str] = []


class MapPart(nn.Module):
    """A part that changes grid tokens only: subclasses implement `on_map`; prefix tokens are unchanged.

    Args:
        layout: grid and prefix of the tokens.

    >>> class Flip(MapPart):
    ...     def on_map(self, x: Tensor) -> Tensor:
    ...         return x.flip(2)
    >>> Flip(TokenLayout((1, 2), prefix=1))(torch.tensor([[[7.0], [1.0], [2.0]]])).flatten()
    tensor([7., 2., 1.])
    """

    def __init__(self, layout: TokenLayout) -> None:
        super().__init__()
        self.layout = layout

    def on_map(self, x: Tensor) -> Tensor:
        """(B, h, w, D) -> (B, h, w, D). Channels last: the map is a view of the tokens, not a copy."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        self.layout.check(x.shape[1], type(self).__name__)
        prefix, grid = x[:, : self.layout.prefix], x[:, self.layout.prefix :]
        mixed = self.on_map(grid.reshape(x.shape[0], *self.layout.grid, x.shape[2])).flatten(1, 2)
        return torch.cat((prefix, mixed), dim=1) if self.layout.prefix else mixed
