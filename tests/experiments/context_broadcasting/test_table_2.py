"""CB Table 2: which arms are compared."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import gains
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_2


def example(claim: Claim, effects: Sequence[float]) -> Results:
    first, _, second = claim.name.partition(": ")
    if second == "Acc@1":
        return gains("Acc@1", f"{first.split()[0]} plain", first, effects)
    return gains("Acc@1", f"{first} {'all' if second == 'upper' else 'fair'}", f"{first} upper", effects)


def test_the_fair_baseline_differs_in_repeated_augmentation_only() -> None:
    from vitlab.core.plugins import recipe

    recipes = {job.arm: recipe(job.recipe) for job in table_2.plan("full") if job.seed == 0}
    assert recipes["tiny plain"].augment.repeats == 3
    assert recipes["tiny fair"].augment == recipes["tiny upper"].augment
    assert recipes["tiny fair"].model == recipes["tiny plain"].model
    assert recipes["small all"].model.endswith("ContextBroadcast(blocks='all')")
