"""TAPADL Table 4: mIoU of the three benchmarks, each from its own jobs."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.synthetic import curve, entry, measured, merged
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.robust_token_attention import table_4


def example(claim: Claim, effects: Sequence[float]) -> Results:
    kind, _, second = claim.name.partition("_")
    data = {"data": "acdc"} if kind == "adverse" else {}
    make = {
        "miou": lambda value: curve(miou=value),
        "corrupted": lambda value: measured("segmentation_corruptions", mean_miou=value / 100, clean_miou=0.9),
        "adverse": lambda value: measured("segmentation_corruptions", clean_miou=value / 100),
    }[kind]
    return Results(
        [
            entry(arm, make(60 + effect * (arm == second)), seed, **data)
            for seed, effect in enumerate(effects)
            for arm in ("plain", second)
        ]
    )


def test_each_benchmark_has_its_own_jobs() -> None:
    """Results of one benchmark judge one claim only."""
    for index, claim in enumerate(table_4.CLAIMS):
        judged = [v.outcome != "not run" for v in table_4.check(example(claim, [1.0, 1.1]))]
        assert judged == [i == index for i in range(len(judged))], claim.name


def test_benchmarks_of_one_network_are_told_apart() -> None:
    both = [claim for claim in table_4.CLAIMS if claim.name in ("corrupted_tap", "adverse_tap")]
    results = merged(*(example(claim, [1.0, 1.1, 1.2]) for claim in both))
    found = dict(zip([claim.name for claim in table_4.CLAIMS], table_4.check(results), strict=True))
    assert {name: verdict.outcome for name, verdict in found.items() if verdict.outcome != "not run"} == {
        claim.name: "holds" for claim in both
    }


def test_cityscapes_starts_from_the_weights_of_the_same_variant() -> None:
    trained = {job.arm: job.trained for job in table_4.plan("full")}
    assert "pooling='tap', diversification=1.0" in trained["tap_adl"]
    assert "pooling='', diversification=0.0" in trained["plain"]
