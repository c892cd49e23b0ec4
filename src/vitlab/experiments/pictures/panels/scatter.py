"""One reading against another, a point for each arm (HDVW Figs. 5a, 12b, C.1, E.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from vitlab.core.experiment import Results
from vitlab.experiments.how_vits_work._effects import Reading
from vitlab.experiments.pictures.panels.figure import WIDE, Box, DrawPanel, note_missing
from vitlab.reporting.svg.axes import Panel, round_axis

__all__ = ["label_of", "scatter"]

_NAMES = 110  # pixels for the names, right of the points
_LINE = 14


def scatter(
    title: str,
    x: Reading,
    y: Reading,
    arms: Mapping[str, str],
    printed: Mapping[str, tuple[float, float]] | None = None,
) -> DrawPanel:
    """Returns the function that draws the panel.

    Args:
        title: of the panel.
        x, y: the readings.
        arms: arm -> its name.
        printed: arm -> the paper's numbers, where it prints both.
    """

    def draw(box: Box, results: Results) -> None:
        found = {arm: _point(results, arm, x, y) for arm in arms}
        ours = [(arms[arm], point, "ours") for arm, point in found.items() if point]
        paper = [(f"{arms[arm]} (paper)", point, "paper") for arm, point in (printed or {}).items()]
        points = [*ours, *paper]
        across = round_axis([p[0] for _, p, _ in points], box.left, box.left + WIDE - _NAMES, label_of(x))
        panel = Panel(box.canvas, across, box.y([p[1] for _, p, _ in points], label_of(y)), title)
        panel.frame()
        note_missing(panel, list(arms), [arms[arm] for arm, point in found.items() if not point])
        place = panel.y.end
        for name, (first, second), kind in sorted(points, key=lambda each: -each[1][1]):
            at, place = (panel.x(first), panel.y(second)), max(place, panel.y(second))
            box.canvas.line(*at, panel.x.end + 8, place, "grid")
            if kind == "paper":
                box.canvas.add("rect", "mark paper", x=at[0] - 4, y=at[1] - 4, width=8, height=8)
            else:
                box.canvas.add("circle", "mark ours", cx=at[0], cy=at[1], r=4)
            box.canvas.text(panel.x.end + 11, place + 4, name, f"{kind} small")
            place += _LINE

    return draw


def _point(results: Results, arm: str, x: Reading, y: Reading) -> tuple[float, float] | None:
    """The means over the runs; None if one of them is not a finite number."""
    means = [float(np.mean(list(reading.by_run(results, arm).values()) or math.nan)) for reading in (x, y)]
    return (means[0], means[1]) if np.isfinite(means).all() else None


def label_of(reading: Reading) -> str:
    """The name of a reading with its unit.

    >>> label_of(Reading("NLL_train", (), float, "nats")), label_of(Reading("test error [%]", (), float, "points"))
    ('NLL_train [nats]', 'test error [%]')
    """
    return f"{reading.name} [{reading.unit}]" if reading.unit and "[" not in reading.name else reading.name
