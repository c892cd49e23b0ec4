"""Key numbers: values rounded to their errors, and differences that are clear or not."""

from __future__ import annotations

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.key_numbers import key_numbers


def calibration(subject: str, accuracy: float, error: float) -> Measurement:
    values = {"accuracy": np.array(accuracy), "accuracy_error": np.array(error)}
    model = {"name": subject, "weights": subject * 8, "origin": "file: a"}
    dims: dict[str, tuple[str, ...]] = dict.fromkeys(values, ())
    about = {"model": model, "data": "scenes test[:64] 0", "images": 64}
    return Measurement("calibration", subject, values, dims, {}, {}, about, {"accuracy": "accuracy_error"})


def test_values_and_differences() -> None:
    """0.70 ± 0.01 against 0.80 ± 0.01: a difference of 10 points with a half width of 1.96 · √2 points."""
    (row,) = key_numbers([calibration("a", 0.7, 0.01), calibration("b", 0.8, 0.01)])
    assert row.values == {"a": "70.0 ± 2.0", "b": "80.0 ± 2.0"}
    assert row.differences == {"b": "+10.0 ± 2.8"} and row.clear == {"b": "clear"}
    assert row.name.endswith("%")


def test_small_differences_are_unclear_and_minus_signs_are_typographic() -> None:
    (row,) = key_numbers([calibration("a", 0.70, 0.01), calibration("b", 0.69, 0.01)])
    assert row.clear == {"b": "unclear"} and row.differences["b"].startswith("−1.0")


def test_the_share_of_the_most_attended_tokens_is_named() -> None:
    top = Measurement(
        "token_overfocus", "a", {"top": np.full((2, 4), 0.3)}, {"top": ("share", "layer")}, {"share": (0.05, 0.1)}
    )
    (row,) = key_numbers([top])
    assert row.name == "share of attention on the most attended 5 % of the tokens, deep half of the layers, %"


def test_without_errors_no_difference_is_clear() -> None:
    plain = [Measurement("mine", name, {"x": np.array(value)}, {"x": ()}) for name, value in (("a", 1.0), ("b", 2.5))]
    (row,) = key_numbers(plain)
    assert row.values == {"a": "1", "b": "2.5"} and row.differences == {"b": "+1.5"} and row.clear == {"b": ""}
