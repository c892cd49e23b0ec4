"""Random assignment: the marginal probabilities are those of independent choices."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.data.random_assignment import assign_slots, put, take


@pytest.mark.parametrize(("count", "kinds", "probability"), [(4, 3, 0.5), (7, 3, 1.0), (10, 1, 0.25), (2, 15, 0.5)])
def test_each_image_gets_each_operation_with_its_probability(count: int, kinds: int, probability: float) -> None:
    generator, rounds = torch.Generator().manual_seed(0), 6000
    hits = torch.zeros(count, kinds)
    for _ in range(rounds):
        hand = assign_slots(count, probability, generator, kinds)
        kind = torch.arange(len(hand.rows)) // (len(hand.rows) // kinds)
        seen = hand.active & (hand.rows < count)
        hits[hand.rows[seen], kind[seen]] += 1
    expected = probability / kinds
    error = 5 * (expected * (1 - expected) / rounds) ** 0.5
    assert ((hits / rounds) - expected).abs().max() < error


@settings(deadline=None, max_examples=30)
@given(count=st.integers(1, 40), kinds=st.integers(1, 15), probability=st.floats(0, 1), seed=st.integers(0, 99))
def test_selecting_and_restoring_is_the_identity(count: int, kinds: int, probability: float, seed: int) -> None:
    rows, _ = assign_slots(count, probability, torch.Generator().manual_seed(seed), kinds)
    images = torch.arange(count)[:, None]
    assert len(set(rows.tolist())) == len(rows) and len(rows) % kinds == 0
    assert torch.equal(put(images, rows, take(images, rows)), images)
    marked = put(images, rows, torch.full((len(rows), 1), -1)).flatten().tolist()
    assert marked == [-1 if i in set(rows.tolist()) else i for i in range(count)]
