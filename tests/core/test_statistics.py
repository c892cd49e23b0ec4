"""Intervals against scipy's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vitlab.core.errors import VitlabError
from vitlab.core.statistics import mean_interval, paired_interval, proportion_interval, student_quantile


@settings(deadline=None, max_examples=40)
@given(st.floats(0.5, 0.9995), st.integers(1, 200) | st.sampled_from([1000, 10**6]))
def test_quantiles_of_student(probability: float, freedom: int) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(
        stats.t.ppf(probability, freedom), rel=1e-5, abs=1e-6
    )


runs = st.lists(st.floats(-100, 100), min_size=2, max_size=9).filter(lambda values: len(set(values)) > 1)


@settings(deadline=None, max_examples=25)
@given(runs, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_mean_of_runs(values: list[float], confidence: float) -> None:
    mean, low, high = mean_interval(values, confidence)
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval(confidence)
    assert mean == pytest.approx(math.fsum(values) / len(values), abs=1e-9)
    assert (low, high) == pytest.approx((theirs.low, theirs.high), rel=1e-5, abs=1e-6)


def test_pairs_take_what_seeds_share_out_of_the_interval() -> None:
    plain, other = [60.0, 62.0, 65.0, 61.0], [61.0, 62.5, 66.0, 62.0]
    mean, low, high = paired_interval(plain, other)
    theirs = stats.ttest_rel(other, plain).confidence_interval(0.95)
    assert mean == pytest.approx(0.875) and (low, high) == pytest.approx((theirs.low, theirs.high), rel=1e-6)
    assert paired_interval(other, plain)[0] == -mean
    assert high - low < mean_interval(plain)[2] - mean_interval(plain)[1]


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 50_000), st.floats(0, 1), st.sampled_from([0.8, 0.95, 0.99]))
def test_shares_have_wilsons_interval(count: int, share: float, confidence: float) -> None:
    correct = round(share * count)
    p, low, high = proportion_interval(correct, count, confidence)
    theirs = stats.binomtest(correct, count).proportion_ci(confidence, method="wilson")
    assert p == correct / count
    assert (low, high) == pytest.approx((theirs.low, theirs.high), rel=1e-4, abs=1e-6)
    assert 0 <= low <= p + 1e-12 and p - 1e-12 <= high <= 1


def test_one_run_says_nothing_about_spread() -> None:
    assert mean_interval([3.0]) == (3.0, -math.inf, math.inf)
    assert paired_interval([1.0], [3.0]) == (2.0, -math.inf, math.inf)


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(VitlabError, match="no runs"):
        mean_interval([])
    with pytest.raises(VitlabError, match="1 and 3 runs cannot be paired"):
        paired_interval([1.0], [1.0, 2.0, 3.0])
    for correct, count in ((0, 0), (3, 2), (-1, 2)):
        with pytest.raises(VitlabError, match=f"{correct} of {count} is no share"):
            proportion_interval(correct, count)
