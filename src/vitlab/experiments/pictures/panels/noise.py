"""The decrease in accuracy under noise of limited frequency (HDVW Fig. 2b)."""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Results
from vitlab.experiments.pictures.panels.figure import Box, DrawPanel, Lines, note_missing
from vitlab.reporting.svg.axes import Panel

__all__ = ["noise"]


def noise(title: str, arms: Lines) -> DrawPanel:
    """Returns the function that draws a curve for each arm."""

    def draw(box: Box, results: Results) -> None:
        curves = {}
        for arm in arms:
            found = [each for _, each in results.select(arm, "frequency_noise")]
            if found:
                drop = 100 * np.mean([each.values["drop"] for each in found], axis=0)
                curves[arm] = ([float(each) for each in found[0].axes["frequency"]], list(drop))
        y = box.y([0.0, *(each for _, drop in curves.values() for each in drop)], "decrease in accuracy [points]")
        panel = Panel(box.canvas, box.x([0.0, 1.0], "frequency of the noise [π]"), y, title)
        panel.frame()
        note_missing(panel, list(arms), [arms[arm][0] for arm in arms if arm not in curves])
        for arm, (frequency, drop) in curves.items():
            panel.curve(frequency, drop, arms[arm][1])

    return draw
