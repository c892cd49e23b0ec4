"""Figures for the page: titles of axes are as long as their axis."""

from __future__ import annotations

import json

import pytest

from vitlab.reporting.drawing import Figure, empty_plot
from vitlab.reporting.page_figure import view


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("accuracy, %", "accuracy, %"),
        ("drop of accuracy, points (bars: 95 %)", "drop of accuracy, points<br>(bars: 95 %)"),
        ("mean of a<sub>ij</sub> ‖p<sub>i</sub> - p<sub>j</sub>‖, sides of images", None),
        ("a title of words that is longer than its axis is", "a title of words that is<br>longer than its axis is"),
    ],
)
def test_long_axis_titles_are_wrapped(given: str, shown: str | None) -> None:
    figure = Figure("Finding", "", empty_plot("layer", given))
    text = json.loads(view(figure, ["a"])["plot"])["layout"]["yaxis"]["title"]["text"]
    assert text == (shown or given.replace(", sides", ",<br>sides"))
