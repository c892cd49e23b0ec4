"""Conversion of tokens to (B, N, D) and back, against explicit loops.

Shape legend: B batch, N tokens, D channels, h w grid, T windows, n tokens of a window.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vitlab.core.anatomy import TokenLayout, window_permutation
from vitlab.core.errors import VitlabError
from vitlab.recording.tokens import from_tokens, orders, to_tokens

small = st.integers(1, 3)


def canonical(batch: int, layout: TokenLayout, dim: int) -> Tensor:
    """(B, N, D), all entries different."""
    return torch.arange(batch * layout.tokens * dim, dtype=torch.float32).reshape(batch, layout.tokens, dim)


@settings(deadline=None, max_examples=25)
@given(small, small, small, small, small)
def test_maps_and_channels_first_by_loops(batch: int, h: int, w: int, dim: int, prefix: int) -> None:
    for order in ("BCHW", "BHWD", "BDN", "BND"):
        layout = TokenLayout((h, w), 0 if order in ("BCHW", "BHWD") else prefix, order)
        tokens = canonical(batch, layout, dim)
        n = layout.tokens
        shape = {"BCHW": (batch, dim, h, w), "BHWD": (batch, h, w, dim), "BDN": (batch, dim, n), "BND": (batch, n, dim)}
        lying = torch.zeros(shape[order])
        for b in range(batch):
            for i in range(n):
                for d in range(dim):
                    y, x = divmod(i, w)
                    place = {"BCHW": (b, d, y, x), "BHWD": (b, y, x, d), "BDN": (b, d, i), "BND": (b, i, d)}[order]
                    lying[place] = tokens[b, i, d]
        assert torch.equal(to_tokens(lying, layout), tokens)
        assert torch.equal(from_tokens(tokens, layout, lying), lying)


@settings(deadline=None, max_examples=40)
@given(small, small, small, small, small, st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_windows_by_loops(
    batch: int, rows: int, columns: int, p: int, q: int, down: int, right: int, dilated: bool
) -> None:
    h, w, dim, count = rows * p, columns * q, 2, rows * columns
    permutation = window_permutation((h, w), (p, q), (down, right), dilated)
    for order in ("BND", "BTND"):
        layout = TokenLayout((h, w), 0, order, count, permutation)
        tokens = canonical(batch, layout, dim)
        lying = torch.zeros(batch, count, p * q, dim)
        for b in range(batch):
            for t in range(count):
                for i in range(p * q):
                    lying[b, t, i] = tokens[b, permutation[t * p * q + i]]
        lying = lying.flatten(0, 1) if order == "BND" else lying
        assert torch.equal(to_tokens(lying, layout), tokens)
        assert torch.equal(from_tokens(tokens, layout, lying), lying)


@settings(deadline=None, max_examples=25)
@given(small, small, st.integers(0, 2), st.randoms(use_true_random=False))
def test_prefix_tokens_stay_in_front(h: int, w: int, prefix: int, random: object) -> None:
    permutation = list(range(h * w))
    random.shuffle(permutation)
    layout = TokenLayout((h, w), prefix, permutation=tuple(permutation))
    tokens = canonical(2, layout, 3)
    lying = torch.cat([tokens[:, :prefix], tokens[:, prefix:][:, permutation]], 1)
    assert torch.equal(to_tokens(lying, layout), tokens)
    assert torch.equal(from_tokens(tokens, layout, lying), lying)
    order, inverse = orders(layout)
    assert torch.equal(to_tokens(lying, layout, inverse), tokens)
    assert torch.equal(from_tokens(tokens, layout, lying, order), lying)
    assert torch.equal(order[inverse], torch.arange(layout.tokens))


def test_gradients_go_through() -> None:
    layout = TokenLayout((2, 4), windows=2, permutation=window_permutation((2, 4), (2, 2), (1, 1)))
    lying = torch.randn(4, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: from_tokens(to_tokens(x, layout).cumsum(1), layout, x), lying)


def test_unsupported_layouts_raise() -> None:
    layout = TokenLayout((2, 2), permutation=(3, 2, 1, 0))
    with pytest.raises(VitlabError, match=r"2x2 grid.*got 5"):
        to_tokens(torch.zeros(1, 5, 2), layout)
    with pytest.raises(VitlabError, match="has no permutation"):
        orders(TokenLayout((2, 2)))
    unknown_order = TokenLayout((2, 2), windows=2, permutation=())  # windows that pad: tokens would be lost silently
    with pytest.raises(VitlabError, match="order of the 2x2 map is not known"):
        to_tokens(torch.zeros(2, 2, 2), unknown_order)
    with pytest.raises(VitlabError, match=r"2x2 grid.*got 9"):  # one window that pads
        to_tokens(torch.zeros(1, 9, 2), TokenLayout((2, 2), permutation=()))
    text = TokenLayout((2, 2), prefix=3, permutation=(), varying=True)
    assert to_tokens(torch.zeros(1, 9, 2), text).shape == (1, 9, 2)


def test_shuffled_tokens_keep_their_order() -> None:
    layout, x = TokenLayout((2, 2), prefix=1, permutation=()), torch.arange(10.0).reshape(1, 5, 2)
    assert layout.shuffled and not TokenLayout((2, 2)).shuffled
    assert torch.equal(to_tokens(x, layout), x) and torch.equal(from_tokens(x, layout, x), x)
