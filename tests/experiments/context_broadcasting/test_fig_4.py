"""CB Fig. 4: each claim reads its own value of the entropy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from experiments.context_broadcasting.arms import parts
from experiments.synthetic import layered
from vitlab.core.experiment import Claim, Results
from vitlab.core.measurement import Measurement
from vitlab.experiments.context_broadcasting import fig_4


def entropy(high: float = 0.0, share: float = 0.0, top: float = 0.0, bound: float = 5.0) -> Measurement:
    """Two layers with two heads; the second layer is the densest."""
    by_head, by_layer = ("layer", "head"), ("layer",)
    return layered(
        "attention_entropy",
        {"layer": ("a", "b"), "head": (0, 1)},
        mean=(by_head, [[high - 20, high - 20], [high - 1, high + 1]]),
        normalised=(by_head, [[share - 0.1, share + 0.1], [share, share]]),
        pooled_p85=(by_layer, [top * bound - 1, top * bound + 1]),
        pooled_p15=(by_layer, [-9.0, -9.0]),
        bound=(by_layer, [bound, bound]),
    )


def example(claim: Claim, effects: Sequence[float]) -> Results:
    if claim.name == "bound":
        return parts("DeiT-Ti", [entropy(bound=effects[0])])
    arm, _, kind = claim.name.partition(": ")
    made = {
        "as high as 4.4": lambda effect: entropy(high=4.35 + effect),
        "dense": lambda effect: entropy(share=0.5 + effect),
        "top 15 %": lambda effect: entropy(top=0.9 + effect),
    }[kind]
    return parts(arm, [made(effect) for effect in effects])


@pytest.mark.parametrize(("tokens", "outcome"), [(197, "holds"), (196, "holds"), (65, "does not hold")])
def test_the_bound_is_that_of_197_tokens(tokens: int, outcome: str) -> None:
    assert fig_4.check(parts("ViT-S", [entropy(bound=math.log(tokens))]))[0].outcome == outcome


def test_entropies_are_in_nats_and_shares_are_not() -> None:
    units = {claim.name.partition(": ")[2]: claim.unit for claim in fig_4.CLAIMS[1:]}
    assert units == {"as high as 4.4": "nats", "dense": "of the bound", "top 15 %": "of the bound"}


def test_at_small_only_deit_tiny_is_measured() -> None:
    assert {job.arm for job in fig_4.plan("small")} == {"DeiT-Ti"}
