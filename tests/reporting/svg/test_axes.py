"""Axes: ticks at round numbers that cover the values, and the mapping to pixels."""

from __future__ import annotations

import numpy as np
import pytest

from vitlab.reporting.svg.axes import layer_axis, round_axis


@pytest.mark.parametrize("values", [[0.0, 5.3], [-2.35, -1.69], [3.0, 3.0], [1e-4, 7e-4], [float("nan"), 2.0, 9.0], []])
def test_ticks_cover_the_values(values: list[float]) -> None:
    axis = round_axis(values, 300, 100, "y")
    finite = [value for value in values if np.isfinite(value)]
    assert axis.low <= min(finite, default=axis.low) and max(finite, default=axis.high) <= axis.high
    assert axis.low < axis.high and 2 <= len(axis.ticks) <= 8
    np.testing.assert_allclose(np.diff(axis.ticks), np.diff(axis.ticks)[0])
    assert (axis(axis.low), axis(axis.high)) == (300, 100)


def test_pixels_are_linear() -> None:
    axis = layer_axis(12, 0, 120)
    assert [axis(1), axis(12)] == [pytest.approx(5), pytest.approx(115)]
