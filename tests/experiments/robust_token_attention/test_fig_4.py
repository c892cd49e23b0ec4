"""TAPADL Fig. 4: the similarity of heads, and how many of them are diagonal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from experiments.robust_token_attention import by_name
from experiments.synthetic import entry
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.robust_token_attention import fig_4


def example(claim: Claim, effects: Sequence[float]) -> Results:
    if claim.name == "diagonal_heads":
        return with_diagonal_heads(int(effects[0]))
    return by_name.example(claim, effects)


def with_diagonal_heads(count: int) -> Results:
    last = [0.9] * count + [0.4] * max(8 - count, 0)
    found = by_name.diversity(neighbourhood_mass=[[0.9] * len(last), [0.1] * len(last), last])
    return Results([entry("tap_adl", found, model=by_name.MODEL)])


@pytest.mark.parametrize(("count", "outcome"), [(0, "does not hold"), (2, "holds"), (8, "does not hold")])
def test_diagonal_heads_of_the_last_layer_are_counted(count: int, outcome: str) -> None:
    assert fig_4.check(with_diagonal_heads(count))[-1].outcome == outcome


def test_trained_networks_do_not_decide_claims_on_published_weights() -> None:
    (_, found), *_ = with_diagonal_heads(2).entries
    assert fig_4.check(Results([entry("tap_adl", found)]))[-1].outcome == "not run"
