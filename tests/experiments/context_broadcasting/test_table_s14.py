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


def test_the_plain_networks_have_published_weights() -> None:
    """Each row of the table without CB, with its file below the data root among its needs."""
    jobs = {job.arm: job for job in table_s14.plan("released")}
    assert jobs.keys() == {f"{name} plain" for name in ("pvt_small", "local_vit_tiny", "pvt_v2_b1", "swin_tiny")}
    files = {"pvt_small plain": "pvt_small.pth", "local_vit_tiny plain": "localvit_tiny_mlp4_act3_r192.pth"}
    for arm, job in jobs.items():
        expected = {"imagenet"} | ({f"weights/{files[arm]}"} if arm in files else set())
        assert set(job.needs) == expected
        assert ("{root}/weights/" in job.model) == (arm in files)
