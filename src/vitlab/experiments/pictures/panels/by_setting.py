"""A reading of several arms in the order of a setting, such as kernel or epochs (HDVW Figs. 5b, 7a, C.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from vitlab.core.experiment import Results
from vitlab.experiments.how_vits_work._effects import Reading
from vitlab.experiments.pictures.panels.figure import WIDE, Box, DrawPanel, note_missing
from vitlab.experiments.pictures.panels.scatter import label_of
from vitlab.reporting.svg.axes import Axis, Panel

__all__ = ["by_setting"]


def by_setting(
    title: str, reading: Reading, setting: str, labels: Sequence[str], curves: Mapping[str, Sequence[str]]
) -> DrawPanel:
    """Returns the function that draws the panel.

    Args:
        title: of the panel.
        reading: the number of an arm.
        setting: what the arms differ in.
        labels: the value of the setting of each arm of a curve, at equal distances.
        curves: class of a line -> its arms, one per label.
    """

    def draw(box: Box, results: Results) -> None:
        means = {kind: [_mean(reading, results, arm) for arm in arms] for kind, arms in curves.items()}
        x = Axis(-0.5, len(labels) - 0.5, box.left, box.left + WIDE, "", ())
        panel = Panel(box.canvas, x, box.y([each for row in means.values() for each in row], label_of(reading)), title)
        panel.frame()
        missing = [label for label, *row in zip(labels, *means.values(), strict=True) if all(map(math.isnan, row))]
        note_missing(panel, labels, missing)
        for place, label in enumerate(labels):
            box.canvas.text(x(place), panel.y.start + 16, label, "soft small middle")
        box.canvas.text((x.start + x.end) / 2, panel.y.start + 36, setting, "middle")
        for kind, row in means.items():
            panel.curve(range(len(row)), row, kind)

    return draw


def _mean(reading: Reading, results: Results, arm: str) -> float:
    """The mean over the runs with a finite number; NaN without one."""
    found = [each for each in reading.by_run(results, arm).values() if math.isfinite(each)]
    return float(np.mean(found)) if found else math.nan
