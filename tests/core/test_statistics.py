"""Intervals and tests against scipy's."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vitlab.core.errors import VitlabError
from vitlab.core.statistics import (
    holm,
    mean_interval,
    none_bound,
    paired_half_width,
    paired_interval,
    proportion_interval,
    sign_flip_p,
    student_p,
    student_quantile,
)


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
    with pytest.raises(VitlabError, match="empty sequence of runs"):
        mean_interval([])
    with pytest.raises(VitlabError, match="1 and 3 runs cannot be paired"):
        paired_interval([1.0], [1.0, 2.0, 3.0])
    for correct, count in ((0, 0), (3, 2), (-1, 2)):
        with pytest.raises(VitlabError, match=f"invalid proportion {correct} of {count}"):
            proportion_interval(correct, count)


@settings(deadline=None, max_examples=40)
@given(runs)
def test_the_p_value_of_a_mean(values: list[float]) -> None:
    assert student_p(values) == pytest.approx(stats.ttest_1samp(values, 0.0).pvalue, rel=1e-5, abs=1e-7)


def test_the_p_value_and_the_interval_agree_about_zero() -> None:
    assert student_p([0.1, 0.5, 0.9]) > 0.05 and mean_interval([0.1, 0.5, 0.9])[1] < 0
    assert student_p([0.4, 0.5, 0.6]) < 0.05 and mean_interval([0.4, 0.5, 0.6])[1] > 0
    assert math.isnan(student_p([1.0])) and student_p([1.0, 1.0]) == 0.0 and student_p([0.0, 0.0]) == 1.0


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_bonferroni_closed_under_intersection(p_values: list[float]) -> None:
    """Adjusted p of a test: the largest Bonferroni p among all sets of tests that it belongs to."""
    count = len(p_values)
    subsets = [s for size in range(1, count + 1) for s in itertools.combinations(range(count), size)]
    expected = [
        max(min(1.0, len(subset) * min(p_values[j] for j in subset)) for subset in subsets if i in subset)
        for i in range(count)
    ]
    assert holm(p_values) == pytest.approx(expected)


def test_holm_refuses_what_is_no_probability() -> None:
    assert holm([]) == []
    with pytest.raises(VitlabError, match="invalid p values .*; expected 0 to 1"):
        holm([0.1, math.nan])


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 40))
def test_the_sign_flip_test_of_binary_outcomes_is_mcnemars(gained: int, lost: int, same: int) -> None:
    gaps = [0.1] * gained + [-0.1] * lost + [0.0] * same
    expected = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert sign_flip_p(gaps) == pytest.approx(expected)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(-6, 6), min_size=1, max_size=9))
def test_the_sign_flip_test_against_all_signs(steps: list[int]) -> None:
    sums = [abs(np.dot(signs, np.abs(steps))) for signs in itertools.product((-1, 1), repeat=len(steps))]
    expected = np.mean([each >= abs(sum(steps)) for each in sums])
    assert sign_flip_p([each / 6 for each in steps]) == pytest.approx(expected)


def test_the_sign_flip_test_is_only_for_outcomes_in_steps() -> None:
    assert math.isnan(sign_flip_p(np.random.default_rng(0).normal(size=20).tolist()))


def test_paired_intervals_of_continuous_numbers_and_of_parts_are_students() -> None:
    random = np.random.default_rng(1)
    one, two = random.normal(size=(2, 30))
    for a, b, parts in ((one, two, False), ([1.0, 2.0, 4.0], [2.0, 3.1, 5.1], True)):
        interval = stats.ttest_rel(b, a).confidence_interval(0.95)
        half = (interval.high - interval.low) / 2
        assert paired_half_width(a, b, parts=parts) == pytest.approx(half, rel=1e-5)
    assert math.isnan(paired_half_width([1.0, 2.0], [2.0, 3.5])), "two are too few"


@pytest.mark.parametrize("count", [16, 32, 64])
def test_models_that_do_not_differ_are_rarely_called_different(count: int) -> None:
    """The exact rate over all pairs of outcomes without a true difference; that of Student's interval reaches 7.7 %."""
    clear = np.zeros((count + 1, count + 1))  # by the number of images that differ, and of those gained
    for differing, gained in itertools.product(range(count + 1), repeat=2):
        if gained <= differing:
            two = np.array([1.0] * gained + [0.0] * (count - gained))
            one = np.array([0.0] * gained + [1.0] * (differing - gained) + [0.0] * (count - differing))
            clear[differing, gained] = abs((two - one).mean()) > paired_half_width(one, two)
    number = np.arange(count + 1)
    each = (clear * stats.binom.pmf(number[None], number[:, None], 0.5)).sum(1)
    rates = [float(stats.binom.pmf(number, count, share) @ each) for share in np.linspace(0.02, 1, 50)]
    assert 0.02 < max(rates) <= 0.05


@pytest.mark.parametrize("count", [16, 32, 64])
@pytest.mark.parametrize("differing", [0.15, 0.4, 1.0])
def test_means_over_two_conditions_that_do_not_differ(count: int, differing: float) -> None:
    random, trials, clear = np.random.default_rng(count), 1500, 0
    for _ in range(trials):
        first = random.random((2, count)) < 0.5
        chosen = random.random(count) < differing  # images on which the second model is a coin
        second = np.where(chosen, random.random((2, count)) < 0.5, first)
        one, two = first.mean(0), second.mean(0)
        clear += abs((two - one).mean()) > paired_half_width(one, two)
    assert clear / trials <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / trials)


def test_outcomes_that_do_not_differ_have_the_exact_bound() -> None:
    one = [1.0] * 20 + [0.0] * 12
    assert none_bound(32) == pytest.approx(stats.binomtest(0, 32).proportion_ci(method="exact").high)
    assert paired_half_width(one, one) == pytest.approx(none_bound(32))
    assert paired_half_width([100 * each for each in one], [100 * each for each in one]) == pytest.approx(
        100 * none_bound(32)
    )
    assert math.isnan(paired_half_width([0.0] * 32, [0.0] * 32)), "their range is not known"
