"""TAPADL Table 3: errors by corruption; the printed table itself gives the printed effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from experiments.robust_token_attention import by_name
from experiments.synthetic import entry, layered
from vitlab.core.experiment import Claim, Results
from vitlab.core.measurement import Measurement
from vitlab.experiments.robust_token_attention import table_3

NAMES = table_3._NAMES
ARMS = ("plain", "tap", "adl", "tap_adl")


def errors(values: Sequence[float], relative: bool = True) -> Measurement:
    """A measurement with these errors in per cent by corruption."""
    found = np.asarray(values) / 100
    return layered(
        "corruptions",
        {"corruption": NAMES, "severity": (1, 2)},
        mce=((), found.mean() if relative else np.nan),
        mean_accuracy=((), 1 - found.mean()),
        ce=(("corruption",), found if relative else np.full(len(found), np.nan)),
        error=(("corruption", "severity"), np.stack([found - 0.01, found + 0.01], 1)),
    )


def results(rows: Sequence[Mapping[str, Sequence[float]]], relative: bool = True) -> Results:
    return Results([entry(arm, errors(row[arm], relative), seed) for seed, row in enumerate(rows) for arm in row])


def example(claim: Claim, effects: Sequence[float]) -> Results:
    kind, _, name = claim.name.partition("_")
    level = np.full(len(NAMES), 50.0)
    if kind == "error":
        mask = np.array([each == name for each in NAMES])
        return results([{"plain": level, "tap_adl": level - effect * mask} for effect in effects])
    if kind == "noise":
        mask = np.array([each in NAMES[:3] for each in NAMES])
        return results([{arm: level - effect * mask * (arm == "tap_adl") for arm in ARMS} for effect in effects])
    if kind == "best":
        rows = []
        for effect in effects:
            wins = round(np.clip(effect + 7.5, 0, 15))
            better = np.where(np.arange(15) < wins, -1.0, 1.0)
            rows.append({arm: level + better * (arm == "tap_adl") for arm in ARMS})
        return results(rows)
    if kind == "evaluated":
        ((job, _),) = by_name.example(claim, effects).entries
        return Results([(job, errors(level - 50 + effects[0]))])
    return results([{"plain": level, name: level - effect} for effect in effects])


def verdict_of(name: str, found: Results) -> float | None:
    index = [claim.name for claim in table_3.CLAIMS].index(name)
    claim = table_3.CLAIMS[index]
    ours = table_3.check(found)[index].our_value
    assert ours == pytest.approx(claim.paper, abs=0.006)
    return ours


def test_the_printed_table_gives_the_printed_effects() -> None:
    printed = results([{arm: table_3._ROWS[arm][1:] for arm in ARMS}])
    assert verdict_of("best_on_most", printed) == 3.5  # best on 11 of 15
    verdict_of("noise", printed)
    assert verdict_of("error_gaussian_noise", printed) == pytest.approx(6.25)  # as the text says


def test_without_errors_of_alexnet_the_plain_error_is_used() -> None:
    plain = results([{arm: table_3._ROWS[arm][1:] for arm in ARMS}], relative=False)
    verdict_of("error_gaussian_noise", plain)


def test_the_mean_error_replaces_an_mce_that_is_not_defined() -> None:
    """Fewer severities, or scenes: 100 · (1 − mean accuracy) in place of NaN."""
    values = {"mce": np.nan, "mean_accuracy": 0.7}
    (found,) = table_3.MCE.of(
        Results([entry("plain", layered("corruptions", {}, **{k: ((), v) for k, v in values.items()}))]), "plain"
    ).values()
    assert found == pytest.approx(30)


def test_the_paper_contradicts_itself() -> None:
    """The mean of the 15 printed errors is the printed mCE, but for TAP & ADL, where it is 43.52."""
    means = {arm: float(np.mean(row[1:])) for arm, row in table_3._ROWS.items()}
    assert {arm: round(mean, 2) for arm, mean in means.items()}["tap_adl"] == 43.52
    for arm in ("plain", "tap", "adl"):
        assert means[arm] == pytest.approx(table_3._ROWS[arm][0], abs=0.06)
