"""Intervals against scipy's, confusion matrices against sets of pixels."""

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
    confusion_matrix,
    holm,
    mean_interval,
    paired_interval,
    proportion_interval,
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


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=30))
def test_confusion_matrix_counts_sets_of_pixels(pairs: list[tuple[int, int]]) -> None:
    """Six classes: 4 is never labelled, 5 neither labelled nor predicted."""
    labels, predicted = (np.array(each) for each in zip(*pairs, strict=True))
    confusion = confusion_matrix(labels, predicted, 6)
    assert confusion.sum() == len(pairs)
    for k in range(6):
        truth, guess = ({i for i, pair in enumerate(pairs) if pair[side] == k} for side in (0, 1))
        assert confusion[k].sum() == len(truth) and confusion[:, k].sum() == len(guess)
        assert confusion[k, k] == len(truth & guess)


def test_labels_without_a_class_are_refused() -> None:
    cases = (([0, 3], [0, 0], "invalid labels from 0 to 3"), ([0], [-1], "invalid predictions from"))
    for labels, predicted, message in cases:
        with pytest.raises(VitlabError, match=message):
            confusion_matrix(np.array(labels), np.array(predicted), 3)


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
