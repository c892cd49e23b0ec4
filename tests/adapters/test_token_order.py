"""A change of half of the image shows the order of tokens."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cases import redraw
from vitlab.adapters.token_order import row_major
from vitlab.core.anatomy import TokenLayout


class Patches(nn.Module):
    """Patches as tokens, in a given order, and one identity block."""

    def __init__(self, order: list[int]) -> None:
        super().__init__()
        self.order, self.patches, self.block = order, nn.Conv2d(3, 8, 4, 4), nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        return self.block(self.patches(images).flatten(2).mT[:, self.order])


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (range(16), True),
        ([4 * (i % 4) + i // 4 for i in range(16)], False),  # column-major
        (range(15, -1, -1), False),
        (torch.randperm(16, generator=torch.Generator().manual_seed(0)).tolist(), False),
    ],
    ids=["rows", "columns", "reversed", "shuffled"],
)
def test_the_order_of_tokens(order: list[int], expected: bool) -> None:
    model = redraw(Patches(list(order)))
    found = row_major(model, torch.zeros(1, 3, 16, 16), {"block": TokenLayout((4, 4))}, [])
    assert found == {"block": expected}


class Behind(nn.Module):
    """A second block whose input is only the output of a branch."""

    def __init__(self, order: list[int]) -> None:
        super().__init__()
        self.first, self.branch, self.second = Patches(order), nn.Identity(), nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        return self.second(self.branch(self.first(images)))


@pytest.mark.parametrize("ordered", [True, False])
def test_a_block_without_input_from_the_branch_has_the_order_of_the_previous_one(ordered: bool) -> None:
    model = redraw(Behind(list(range(16)) if ordered else list(range(15, -1, -1))))
    layouts = dict.fromkeys(("first.block", "second"), TokenLayout((4, 4)))
    found = row_major(model, torch.zeros(1, 3, 16, 16), layouts, ["branch"])
    assert found == {"first.block": ordered, "second": ordered}
