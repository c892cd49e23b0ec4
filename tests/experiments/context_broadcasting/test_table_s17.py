"""CB Table S17: positions in the MLP."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import counts, gains
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_s17


def example(claim: Claim, effects: Sequence[float]) -> Results:
    arm, _, column = claim.name.partition(": ")
    if column == "FLOPs":
        return Results([counts(arm, **{"macs" if arm == "plain" else "added_macs": effects[0] * 1e6})])
    if column == "best position":
        best, other = ("front", "end") if arm == "cb_hybrid" else ("end", "front")
        return gains("Acc@1", f"{arm} at {other}", f"{arm} at {best}", effects)
    if claim.name == "end over mid: top-5":
        return gains("Acc@5", "cb at mid", "cb at end", effects)
    if claim.name == "cb over gate":
        return gains("Acc@1", "cb_gate at end", "cb at end", effects)
    return gains(column, "plain", arm, effects)


def test_our_counts_are_those_of_the_table_but_for_the_baseline() -> None:
    """The baseline's 1260 M is ViT-Ti's number."""
    from vitlab.model_sizes import size_of

    sizes = {job.arm: size_of(job.model) for job in table_s17.plan("released")}
    entries = [counts(arm, size.parameters, size.macs, size.added_macs) for arm, size in sizes.items()]
    outcomes = [verdict.outcome for verdict in table_s17.check(Results(entries))]
    assert outcomes[:10] == ["does not hold"] + ["holds"] * 9


def test_runs_are_shared_with_table_s16() -> None:
    """Both tables have CB, CB_gate and CB_hybrid at End: the same runs at every scale."""
    from vitlab.experiments.context_broadcasting import table_s16
    from vitlab.experiments.work import work_of

    for scale in ("smoke", "small", "full"):
        runs = [
            {job.arm: work_of(job).key() for job in table.plan(scale) if job.kind == "training" and job.seed == 0}
            for table in (table_s16, table_s17)
        ]
        shared = {arm for arm in runs[0] if arm.endswith("end")}
        assert len(shared) == 3 and all(runs[0][arm] == runs[1][arm] for arm in shared)
