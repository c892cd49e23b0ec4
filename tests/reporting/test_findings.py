"""Sentences that stay true whichever way the numbers go."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.reporting.findings import decimals, finding

numbers = st.floats(-1e4, 1e4).filter(lambda x: x == 0 or abs(x) > 1e-4)


@given(st.lists(numbers, min_size=2, max_size=6))
@settings(deadline=None, max_examples=60)
def test_the_side_is_that_of_the_difference(values: list[float]) -> None:
    names = [f"model{i}" for i in range(len(values))]
    said = finding("loss", values, names)
    places = decimals(values)
    for value, name in zip(values[1:], names[1:], strict=True):
        (side,) = re.findall(rf"for {name} \((.*?)\)", said)
        if round(abs(value - values[0]), places) == 0:
            assert side == "the same"
        else:
            assert side.endswith("higher" if value > values[0] else "lower")


def test_one_model_and_unknown_values() -> None:
    assert finding("mCE", [46.12], ["a"], "%") == "mCE: 46.1 %"
    assert finding("mCE", [math.nan], ["a"], "%") == "mCE: not known"
    assert finding("mCE", [math.nan, 2.0], ["a", "b"]) == "mCE: not known for a, 2.00 for b"
    assert finding("mCE", [2.0, math.nan], ["a", "b"]) == "mCE: 2.00 for a, not known for b"


@pytest.mark.parametrize(("second", "doubt"), [(12.7, True), (12.8, False), (7.3, True), (7.2, False)])
def test_noise_is_that_of_a_difference(second: float, doubt: bool) -> None:
    """1.96 √2 = 2.77 around 10."""
    said = finding("x", [10.0, second], ["a", "b"], errors=[1.0, 1.0])
    assert ("within the noise" in said) == doubt
    assert "within the noise" not in finding("x", [10.0, second], ["a", "b"], errors=[1.0, math.nan])
