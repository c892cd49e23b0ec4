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
def test_the_direction_is_that_of_the_difference(values: list[float]) -> None:
    names = [f"model{i}" for i in range(len(values))]
    sentence = finding("loss", values, names)
    places = decimals(values)
    for value, name in zip(values[1:], names[1:], strict=True):
        (side,) = re.findall(rf"for {name} \((.*?)\)", sentence)
        if round(abs(value - values[0]), places) == 0:
            assert side == "the same" or abs(value - values[0]) < 10.0**-places
        else:
            assert side.endswith("higher" if value > values[0] else "lower")


def test_one_model_and_unknown_values() -> None:
    assert finding("mCE", [46.12], ["a"], "%") == "mCE: 46.1 %, noise not known"
    assert finding("mCE", [math.nan], ["a"], "%") == "mCE: not known"
    assert finding("mCE", [math.nan, 2.0], ["a", "b"]) == "mCE: not known for a, 2.00 for b; noise not known"
    assert finding("mCE", [2.0, math.nan], ["a", "b"]) == "mCE: 2.00 for a, not known for b; noise not known"
    one = finding("mCE", [2.0, math.nan], ["a", "b"], errors=[0.1, math.nan])
    assert one == "mCE: 2.00 ± 0.20 for a, not known for b"


@pytest.mark.parametrize(("second", "doubt"), [(12.7, True), (12.8, False), (7.3, True), (7.2, False)])
def test_the_error_is_that_of_the_difference(second: float, doubt: bool) -> None:
    """1.96 √2 = 2.77 around 10."""
    sentence = finding("x", [10.0, second], ["a", "b"], errors=[1.0, 1.0])
    assert ("within the noise" in sentence) == doubt
    assert "within the noise" not in finding("x", [10.0, second], ["a", "b"], errors=[1.0, math.nan])
    assert "noise not known" in finding("x", [10.0, second], ["a", "b"], errors=[1.0, math.nan])


def test_an_unknown_value_is_stated_at_its_position() -> None:
    sentence = finding("x", [10.0, 20.0, 30.0], ["a", "b", "c"], errors=[1.0, 1.0, math.nan])
    assert sentence == "x: 10.0 for a, 20.0 for b (10.0 higher), 30.0 for c (20.0 higher, noise not known)"
    assert finding("x", [10.0], ["a"], "%", errors=[0.5]) == "x: 10.00 ± 0.98 %"
    assert finding("rate", [0.1, 0.2], ["a", "b"], noisy=False).endswith("(0.100 higher)")


@given(st.lists(numbers, min_size=2, max_size=4))
@settings(deadline=None, max_examples=100)
def test_printed_differences_are_those_of_printed_numbers(values: list[float]) -> None:
    sentence = finding("loss", values, [f"m{i}" for i in range(len(values))])
    first = float(re.search(r"loss: (\S+) for m0", sentence)[1])
    for i, value in enumerate(values[1:], 1):
        shown, side = re.search(rf"(\S+) for m{i} \((.*?)\)", sentence).groups()
        size = 0.0 if side == "the same" else float(side.split()[0])
        assert size == pytest.approx(abs(float(shown) - first), abs=1e-9)
        assert size == pytest.approx(abs(value - values[0]), abs=10.0 ** -decimals(values))


def test_a_decimal_is_added_if_rounded_numbers_do_not_add_up() -> None:
    assert finding("x", [2.906, 2.714], ["a", "b"]).startswith("x: 2.906 for a, 2.714 for b (0.192 lower)")


def test_a_clear_difference_is_never_called_the_same() -> None:
    """Paired models can differ clearly in a digit that would not be printed: the table says so, and the title too."""
    values = [2.8331, 2.83309]
    sentence = finding("Entropy", values, ["a", "b"], halves=[0.1, 0.1], gaps=[2e-6])
    assert sentence == "Entropy: 2.833100 for a, 2.833090 for b (0.000010 lower)"
    sentence = finding("Entropy", values, ["a", "b"], verdicts=["larger than the noise"])
    assert sentence.startswith("Entropy: 2.83310 for a, 2.83309 for b (0.00001 lower)")
    assert finding("Entropy", values, ["a", "b"], errors=[0.1, 0.1]).endswith("2.83 for b (within the noise)")


def test_a_difference_is_rounded_to_its_error_not_computed_from_rounded_numbers() -> None:
    """40.625 and 42.268 differ by 1.643; the numbers rounded to two decimals by 1.65, to one decimal by 1.7."""
    sentence = finding("Accuracy", [40.625, 42.268], ["a", "b"], "%", halves=[5.0, 5.0], gaps=[6.7])
    assert sentence == "Accuracy: 40.6 % for a, 42.3 % for b (1.6 points higher, within the noise)"
