"""CB Fig. 3: the two extra blocks have nearly equal parameters, but not operations."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from experiments.context_broadcasting.arms import counts, metrics
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import fig_3


def example(claim: Claim, effects: Sequence[float]) -> Results:
    if claim.name == "training loss":
        return metrics("train_loss", "attention", "mlp", effects, others=("top1",))
    if claim.name == "top-1":
        return metrics("top1", "mlp", "attention", effects, others=("train_loss",))
    extra = 100 if effects[0] else 126
    return blocks(parameters=extra) if claim.name == "parameters" else blocks(macs=extra)


def blocks(parameters: int = 100, macs: int = 100) -> Results:
    """Counts in which the extra MLP block has 100 parameters and operations, and the attention block those given."""
    return Results(
        [
            counts("none", parameters=900, macs=900),
            counts("mlp", parameters=1000, macs=1000),
            counts("attention", parameters=900 + parameters, macs=900 + macs),
        ]
    )


@pytest.mark.parametrize(
    ("extra", "outcome"), [(104, "holds"), (96, "holds"), (106, "does not hold"), (94, "does not hold")]
)
def test_nearly_equal_is_five_per_cent(extra: int, outcome: str) -> None:
    assert fig_3.check(blocks(parameters=extra))[2].outcome == outcome


def test_the_counts_of_the_two_blocks() -> None:
    """Attention has 4 d² N + 2 N² d operations, an MLP of ratio 2 has 4 d² N: 26 % fewer."""
    from vitlab.model_sizes import size_of

    jobs = {job.arm: job for job in fig_3.plan("released")}
    sizes = {arm: size_of(job.model) for arm, job in jobs.items()}
    d, n = 384, 197
    assert sizes["attention"].macs - sizes["none"].macs == 4 * d * d * n + 2 * n * n * d
    assert sizes["mlp"].macs - sizes["none"].macs == 4 * d * d * n
    results = Results([counts(arm, size.parameters, size.macs) for arm, size in sizes.items()])
    assert [verdict.outcome for verdict in fig_3.check(results)] == ["not run", "not run", "holds", "does not hold"]
