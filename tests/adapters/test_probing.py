"""A change of one token distinguishes attention between tokens from attention between channels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import vitlab
from cases import redraw, timm_model
from vitlab.adapters.probing import between_tokens
from vitlab.core.anatomy import TokenLayout

TOKENS = 16  # equal to the number of channels
LAYOUT = TokenLayout((2, 8))


class Mixing(nn.Module):
    """softmax(q kᵀ) v between tokens or between channels, or another use of a softmax."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.qkv = nn.Linear(TOKENS, 3 * TOKENS)
        self.neighbours = nn.Conv1d(TOKENS, TOKENS, 3, padding=1, groups=TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "neighbours":
            x = x + self.neighbours(x.mT).mT
        q, k, v = self.qkv(x)[:, None].chunk(3, -1)
        if self.kind == "channels":
            return (v @ (q.mT @ k).softmax(-1))[:, 0]
        if self.kind == "features":  # linear attention: each query's softmax is over its own features
            return (q.softmax(-1) @ (k.mT @ v))[:, 0]
        if self.kind == "reversed":
            k = k.flip(-2)
        if self.kind == "fused":
            return nn.functional.scaled_dot_product_attention(q, k, v)[:, 0]
        return ((q @ k.mT).softmax(dim=-1) @ v)[:, 0]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("tokens", True),
        ("fused", True),
        ("neighbours", True),
        ("channels", False),
        ("features", False),
        ("reversed", False),
    ],
)
def test_only_attention_between_tokens_in_their_order_is_confirmed(kind: str, expected: bool) -> None:
    x = torch.randn(2, TOKENS, TOKENS, generator=torch.Generator().manual_seed(0))
    attention = redraw(Mixing(kind))
    assert attention(x).shape == x.shape
    assert between_tokens(attention, (x,), {}, LAYOUT) is expected


@pytest.mark.parametrize("batch_first", [True, False])
def test_the_axis_over_which_multihead_attention_attends(batch_first: bool) -> None:
    attention = nn.MultiheadAttention(TOKENS, 2, batch_first=batch_first)
    x = torch.randn(2, TOKENS, TOKENS)  # images first
    assert between_tokens(attention, (x, x, x), {"need_weights": False}, LAYOUT) is batch_first


def test_the_channel_attention_of_davit_has_no_map() -> None:
    """32 tokens and 32 channels per head in the last stage."""
    settings = {"depths": (1, 1), "embed_dims": (32, 64), "num_heads": (1, 2), "window_size": 4}
    model = redraw(timm_model("davit_tiny", **settings)()).eval()
    anatomy = vitlab.describe(model, (32, 64))
    channels = [block for block in anatomy.blocks if "Channel" in type(model.get_submodule(block.name)).__name__]
    assert [block.mixer.queries for block in channels] == [None, None]
    grid = channels[-1].seam("block.out").layout.grid
    assert grid[0] * grid[1] == 32  # else the shapes alone would be different
    assert "not between tokens" in channels[-1].mixer.why_no_map


class Training(Mixing):
    """Draws random numbers and counts batches in training mode."""

    def __init__(self) -> None:
        super().__init__("tokens")
        self.norm, self.dropout = nn.BatchNorm1d(TOKENS), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(super().forward(self.norm(x)))


def test_a_module_in_training_mode_is_unchanged() -> None:
    attention, x = Training().train(), torch.randn(2, TOKENS, TOKENS)
    before, state = {name: value.clone() for name, value in attention.state_dict().items()}, torch.get_rng_state()
    assert between_tokens(attention, (x,), {}, LAYOUT)
    assert all(module.training for module in attention.modules())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in attention.state_dict().items())
