"""TAPADL Table 6: allocations of TAP, and overfocusing by depth."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.robust_token_attention import by_name
from experiments.synthetic import entry, measured
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.robust_token_attention import table_6


def example(claim: Claim, effects: Sequence[float]) -> Results:
    if claim.name != "overfocus_deep":
        return by_name.example(claim, effects)
    shallow, deep = [0.2] * 3, 7
    return Results(
        [
            entry("plain", measured("token_overfocus", gini_of_mean=[*shallow, *([0.2 + effect] * deep)]), seed)
            for seed, effect in enumerate(effects)
        ]
    )


def test_the_allocations_share_no_block_and_cover_all() -> None:
    import vitlab

    jobs = {job.arm: job for job in table_6.plan("small") if job.kind == "training"}
    placed = {}
    for arm in ("shallow", "middle_deep", "tap"):
        (model,) = (change.removeprefix("model=") for change in jobs[arm].changes if change.startswith("model="))
        placed[arm] = {part.path.split(".")[1] for part in vitlab.parts(vitlab.load(model))}
    assert not placed["shallow"] & placed["middle_deep"]
    assert placed["shallow"] | placed["middle_deep"] == placed["tap"] == {str(i) for i in range(12)}
    assert len(placed["shallow"]) == 4  # 30 % of 12 blocks, rounded
