"""CB Table S13: three stress tests of distilled ViT-S."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import gains
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_s13


def example(claim: Claim, effects: Sequence[float]) -> Results:
    arm, _, column = claim.name.partition(": ")
    return gains(column, "plain", arm, effects)


def test_effects_of_the_table() -> None:
    effects = {claim.name: claim.paper for claim in table_s13.CLAIMS}
    assert [effects[f"{arm}: FGSM"] for arm in ("cb_s", "cb")] == [1.2, 3.7]
