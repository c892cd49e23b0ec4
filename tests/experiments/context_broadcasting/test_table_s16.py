"""CB Table S16: the counts are ours, and each claim depends on its own rows only."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.synthetic import entry, measured, pairs
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_s16


def example(claim: Claim, effects: Sequence[float]) -> Results:
    if claim.name == "flops_base":
        return Results([entry("plain", measured("sizes", macs=effects[0] * 1e6, added_macs=0))])
    kind, _, row = claim.name.partition("_")
    if claim.name == "best_position":
        return pairs("training", "top1", "cb at attention", "cb at end", effects, base=60.0)
    arm = next(name for name in table_s16._ARMS if name.replace(" at ", "_") == row)
    if kind == "flops":
        return Results([entry(arm, measured("sizes", macs=0, added_macs=effects[0] * 1e6))])
    return pairs("training", "top1", "plain", arm, effects, base=60.0)


def test_added_operations_follow_the_closed_form() -> None:
    """N · D elementwise operations per block and module, twice as many for the hybrid form (12 · 197 · 384 = 0.9 M)."""
    from vitlab.model_sizes import size_of

    jobs = {job.arm: job for job in table_s16.plan("released")}
    factors = {"plain": 0, "cb at end": 1, "cb_gate at both": 2, "cb_hybrid at both": 4}
    for arm, factor in factors.items():
        assert size_of(jobs[arm].model).added_macs == factor * 12 * 197 * 384
