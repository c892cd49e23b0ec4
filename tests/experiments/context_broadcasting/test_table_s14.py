"""CB Table S14: other architectures."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import gains
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_s14


def example(claim: Claim, effects: Sequence[float]) -> Results:
    arm, _, column = claim.name.partition(": ")
    return gains(column, arm.replace(" cb", " plain"), arm, effects)


def test_smoke_models_have_the_part() -> None:
    """Each small model is built, with CB in at least one block."""
    import vitlab
    from vitlab.core.plugins import recipe
    from vitlab.core.recipe import change

    for job in table_s14.plan("smoke"):
        if job.recipe:
            model = vitlab.load(change(recipe(job.recipe), job.changes).model)
            assert bool(vitlab.parts(model)) == job.arm.endswith(" cb")
