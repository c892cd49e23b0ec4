"""CB Table S15: ViT-S on CIFAR-100."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import gains
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_s15


def example(claim: Claim, effects: Sequence[float]) -> Results:
    return gains("Acc@1", "plain", "cb", effects)


def test_the_effect_of_the_table() -> None:
    assert table_s15.CLAIMS[0].paper == 0.7
