"""CB Table S12: every cell is a claim with the difference of the table."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import counts, gains
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_s12


def example(claim: Claim, effects: Sequence[float]) -> Results:
    arm, _, column = claim.name.partition(": ")
    if column == "parameters":
        return Results([counts(arm, parameters=effects[0] * 1e6)])
    if column == "FLOPs":
        return Results([counts(arm, macs=effects[0] * 1e9)])
    return gains(column, f"{arm.split()[0]} plain", arm, effects)


def test_training_with_a_teacher_at_smoke_and_full_only() -> None:
    from vitlab.core.plugins import recipe
    from vitlab.core.recipe import change

    trained = {scale: [job for job in table_s12.plan(scale) if job.kind == "training"] for scale in ("small", "full")}
    assert not trained["small"] and len(trained["full"]) == 27
    for job in (*trained["full"], *(job for job in table_s12.plan("smoke") if job.recipe)):
        assert change(recipe(job.recipe), job.changes).objective.distillation == "hard"


def test_our_counts_are_those_of_the_table() -> None:
    from vitlab.model_sizes import size_of

    sizes = {job.arm: size_of(job.model) for job in table_s12.plan("released") if job.kind == "sizes"}
    verdicts = table_s12.check(Results([counts(arm, size.parameters, size.macs) for arm, size in sizes.items()]))
    assert [verdict.outcome for verdict in verdicts if verdict.outcome != "not run"] == ["holds"] * 18
