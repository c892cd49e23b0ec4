"""CB Table 8: three stress tests of ViT-S."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import gains
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_8


def example(claim: Claim, effects: Sequence[float]) -> Results:
    arm, _, column = claim.name.partition(": ")
    return gains(column, "plain", arm, effects)


def test_effects_of_the_table() -> None:
    effects = {claim.name: claim.paper for claim in table_8.CLAIMS}
    assert [effects[f"{arm}: FGSM"] for arm in ("cb_s", "cb")] == [0.6, 5.1]
