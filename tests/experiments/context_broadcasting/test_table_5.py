"""CB Table 5: every cell is a claim with the difference of the table."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import counts, gains
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_5


def example(claim: Claim, effects: Sequence[float]) -> Results:
    arm, _, column = claim.name.partition(": ")
    if column == "parameters":
        return Results([counts(arm, parameters=effects[0] * 1e6)])
    if column == "FLOPs":
        return Results([counts(arm, macs=effects[0] * 1e9)])
    return gains(column, f"{arm.split()[0]} plain", arm, effects)


def test_effects_of_the_paper() -> None:
    """Sec. 3.3: 1.2, 0.9 and 0.3 points more than without CB."""
    effects = {claim.name: claim.paper for claim in table_5.CLAIMS}
    assert [effects[f"{size} cb: Acc@1"] for size in ("tiny", "small", "base")] == [1.2, 0.9, 0.3]
    assert effects["small cb_s: IN-V2"] == 0.6


def test_our_counts_are_those_of_the_table() -> None:
    from vitlab.model_sizes import size_of

    sizes = {job.arm: size_of(job.model) for job in table_5.plan("released") if job.kind == "sizes"}
    verdicts = table_5.check(Results([counts(arm, size.parameters, size.macs) for arm, size in sizes.items()]))
    assert [verdict.outcome for verdict in verdicts if verdict.outcome != "not run"] == ["holds"] * 18
