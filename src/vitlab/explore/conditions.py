"""What the page shows: an image, its corruption and hidden patches, ablations of the model, and a query token.

Shape legend: C channels, h w pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from vitlab.core.errors import VitlabError

OCCLUSION = "Hidden patches are set to 0 after normalisation, which is the mean colour (CB Table 8)."

Place = Literal["head", "attn", "mlp", "block"]


@dataclass(frozen=True, order=True)
class Ablation:
    """One attention head, one branch (`attn` or `mlp`) or one whole block that is ablated.

    Args:
        layer: index of the block.
        at: the place.
        head: index of the head if the place is `head`.
    """

    layer: int
    at: Place
    head: int = 0


@dataclass(frozen=True)
class Condition:
    """An image, a corruption of some severity (0: none), hidden cells of the grid, and ablations of the model."""

    image: str
    corruption: str = ""
    severity: int = 0
    hidden: tuple[int, ...] = ()
    ablations: tuple[Ablation, ...] = ()

    @property
    def changes_input(self) -> bool:
        """Whether the image is corrupted or patches of it are hidden."""
        return bool(self.severity and self.corruption) or bool(self.hidden)

    def clean(self) -> Condition:
        """The unchanged image, with the same ablations."""
        return Condition(self.image, ablations=self.ablations)

    def whole(self) -> Condition:
        """The same input without ablations."""
        return replace(self, ablations=())

    def reference(self) -> tuple[str, Condition] | None:
        """The condition to compare with and its name: the model without ablations, else the clean image."""
        if self.ablations:
            return "the model without ablations", self.whole()
        return ("the clean image", self.clean()) if self.changes_input else None


@dataclass(frozen=True)
class Query:
    """The query token: a prefix token by index, or the token at a position of the image, 0 to 1 along each side."""

    y: float = 0.5
    x: float = 0.5
    prefix: int | None = None


def hide(image: Tensor, cells: Sequence[int], grid: tuple[int, int]) -> Tensor:
    """Set cells of a grid over an image to 0, numbered row by row.

    Args:
        image: (C, h, w), normalised: 0 is the mean colour.
        cells: numbers of cells.
        grid: rows and columns.

    >>> hide(torch.ones(1, 2, 4), [1], (1, 2))[0]
    tensor([[1., 1., 0., 0.],
            [1., 1., 0., 0.]])
    """
    rows, columns = grid
    hidden = torch.zeros(rows * columns, dtype=torch.bool)
    for cell in cells:
        if not 0 <= cell < len(hidden):
            raise VitlabError(f"invalid patch {cell}; expected 0 to {len(hidden) - 1}")
        hidden[cell] = True
    y, x = (torch.arange(side) * count // side for side, count in zip(image.shape[-2:], grid, strict=True))
    return image.masked_fill(hidden.view(grid)[y[:, None], x], 0.0)
