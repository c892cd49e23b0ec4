"""CB Table 6: mIoU by size, module and length of training."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import counts
from experiments.synthetic import pairs
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_6


def example(claim: Claim, effects: Sequence[float]) -> Results:
    if claim.deterministic:
        return Results([counts(claim.name.partition(":")[0], parameters=effects[0] * 1e6)])
    size, _, length = claim.name.split()
    plain = f"{size} plain {length}"
    if claim.name == "small cb_s 160K":  # the one cell in which the module lowers mIoU
        return pairs("training", "miou", claim.name, plain, effects, base=40.0)
    return pairs("training", "miou", plain, claim.name, effects, base=40.0)


def test_effects_of_the_table() -> None:
    effects = {claim.name: claim.paper for claim in table_6.CLAIMS}
    assert [effects[f"{size} cb 40K"] for size in ("tiny", "small", "base")] == [1.0, 0.4, 0.8]
    assert [effects[f"{size} cb 160K"] for size in ("tiny", "small", "base")] == [0.1, 0.6, 0.6]
