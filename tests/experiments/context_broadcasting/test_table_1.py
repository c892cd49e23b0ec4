"""CB Table 1: our counts are the printed ones."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import counts, gains
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_1


def example(claim: Claim, effects: Sequence[float]) -> Results:
    arm, _, column = claim.name.partition(": ")
    if column == "parameters":
        return Results([counts(arm, parameters=effects[0] * 1e6)])
    if column == "added":
        return Results([counts("plain", 1000), counts(arm, 1000 + 10 * effects[0])])
    return gains(column, "plain", arm, effects)


def test_our_counts_are_those_of_the_table() -> None:
    from vitlab.model_sizes import size_of

    jobs = {job.arm: job for job in table_1.plan("released")}
    sizes = {arm: size_of(job.model) for arm, job in jobs.items()}
    assert sizes["cb_s"].parameters - sizes["plain"].parameters == 12 * 384
    verdicts = table_1.check(Results([counts(arm, size.parameters, size.macs) for arm, size in sizes.items()]))
    assert [verdict.outcome for verdict in verdicts[:8]] == ["holds"] * 8
