"""CB Table 11: other architectures."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import counts, gains
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_11


def example(claim: Claim, effects: Sequence[float]) -> Results:
    arm, _, column = claim.name.partition(": ")
    if column != "Acc@1":
        value, unit = {"parameters": ("parameters", 1e6), "FLOPs": ("macs", 1e9)}[column]
        return Results([counts(arm, **{value: unit * effects[0]})])
    return gains(column, arm.replace(" cb", " plain"), arm, effects)


def test_smoke_models_have_the_part() -> None:
    """Each small model is built, with CB in at least one block."""
    import vitlab
    from vitlab.core.plugins import recipe
    from vitlab.core.recipe import change

    for job in table_11.plan("smoke"):
        if job.recipe:
            model = vitlab.load(change(recipe(job.recipe), job.changes).model)
            assert bool(vitlab.parts(model)) == job.arm.endswith(" cb")
