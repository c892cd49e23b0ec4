"""Verdicts: each outcome occurs, the definitions agree with each other and with a dense search for relevant effects."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vitlab.core.errors import VitlabError
from vitlab.core.verdicts import OUTCOMES, judge, verdict

CASES = {
    "holds": (0.2, 1.4),
    "holds, smaller than published": (0.2, 0.5),
    "does not hold": (-0.3, 0.5),
    "inconclusive": (-0.3, 1.4),
    "not run": None,
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_each_outcome_occurs(outcome: str) -> None:
    assert judge(CASES[outcome], 0.6) == outcome


def test_an_effect_in_the_other_direction_does_not_hold() -> None:
    assert judge((-2.0, -1.0), 0.6) == "does not hold"
    assert judge((-2.0, -1.0), 0.0) == "does not hold"


bounds = st.integers(-40, 40).map(lambda tenths: tenths / 10)


@given(st.tuples(bounds, bounds).map(sorted), st.integers(0, 30).map(lambda tenths: tenths / 10))
def test_the_definitions_on_every_value_of_the_interval(interval: list[float], least: float) -> None:
    """The words of the definition, checked value by value on a grid that holds all bounds."""
    low, high = interval
    values = [tenths / 10 for tenths in range(-40, 41) if low <= tenths / 10 <= high]
    holds, too_small = all(value > 0 for value in values), all(value < least for value in values)
    outcome = judge((low, high), least)
    assert outcome.startswith("holds") == holds
    assert (outcome in ("does not hold", "holds, smaller than published")) == too_small
    assert (outcome == "inconclusive") == (not holds and not too_small)


@given(bounds, bounds)
def test_a_claim_about_the_sign_is_never_smaller_than_published(one: float, other: float) -> None:
    assert judge((min(one, other), max(one, other)), 0.0) != "holds, smaller than published"


def test_a_verdict_from_paired_differences() -> None:
    effects = [0.85, 0.70, 0.93, 1.24, 0.91]
    found = verdict("CB raises top-1", effects, 1.2)
    theirs = stats.ttest_1samp(effects, 0.0).confidence_interval(0.95)
    assert found.our_value == pytest.approx(np.mean(effects))
    assert found.interval == pytest.approx((theirs.low, theirs.high), rel=1e-5)
    assert (found.smallest_relevant, found.outcome) == (0.6, "holds")
    assert f"{theirs.low:.3g} to {theirs.high:.3g}: above 0, not below 0.6" in found.why


def test_a_single_pair_is_inconclusive_and_none_is_not_run() -> None:
    assert verdict("a", [5.0], 1.0).outcome == "inconclusive"
    nothing = verdict("a", [], 1.0)
    assert (nothing.outcome, nothing.our_value, nothing.interval) == ("not run", None, None)


def test_the_smallest_relevant_effect_can_be_given() -> None:
    effects = [0.3, 0.31, 0.29]
    assert verdict("a", effects, 1.0).outcome == "holds, smaller than published"
    assert verdict("a", effects, 1.0, smallest_relevant=0.1).outcome == "holds"
    assert verdict("a", effects, None).outcome == "holds"


@pytest.mark.parametrize("interval, least", [((1.0, 0.0), 0.5), ((math.nan, 1.0), 0.5), ((0.0, 1.0), -0.5)])
def test_mistakes_raise_errors(interval: tuple[float, float], least: float) -> None:
    with pytest.raises(VitlabError, match="expected"):
        judge(interval, least)
