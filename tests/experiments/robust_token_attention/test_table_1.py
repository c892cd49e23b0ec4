"""TAPADL Table 1: the counts of FAN-B-Hybrid with each part."""

from __future__ import annotations

from experiments.robust_token_attention.by_name import example as example
from experiments.synthetic import entry, measured
from vitlab.core.experiment import Results
from vitlab.experiments.robust_token_attention import table_1
from vitlab.model_sizes import size_of


def test_the_counts_follow_the_closed_forms() -> None:
    """One dense convolution of C channels per block: k² C² + C; TAP: 9CK + 2K + 9K² (C = 448, 16 blocks, K = 4)."""
    jobs = {job.arm: job for job in table_1.plan("small") if job.kind == "sizes"}
    added = {
        "plain": 0,
        "average_5": 0,
        "convolution_3": 9 * 448**2,
        "convolution_5": 25 * 448**2,
        "multi_kernel": 9 * 448 * 4 + 8 + 9 * 16,
        "tap": 9 * 448 * 4 + 8 + 9 * 16,
    }
    found = {arm: size_of(jobs[arm].model) for arm in added}
    base = found["plain"].parameters
    biases = {arm: 448 if arm.startswith("convolution") else 0 for arm in added}
    for arm, count in added.items():
        assert (found[arm].parameters - base) in (16 * count, 16 * (count + biases[arm])), arm


def test_all_printed_counts_hold() -> None:
    sizes = {job.arm: size_of(job.model) for job in table_1.plan("released")}
    results = Results(
        [
            entry(arm, measured("sizes", parameters=s.parameters, macs=s.macs), model=s.expression)
            for arm, s in sizes.items()
        ]
    )
    verdicts = dict(zip([claim.name for claim in table_1.CLAIMS], table_1.check(results), strict=True))
    judged = {name: verdict.outcome for name, verdict in verdicts.items() if name.startswith(("parameters", "flops"))}
    assert len(judged) == 14 and set(judged.values()) == {"holds"}
