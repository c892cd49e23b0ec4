"""Lesion study: the decrease in accuracy without one unit (HDVW Figs. 10b, D.4)."""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Results
from vitlab.experiments.pictures.panels.figure import HIGH, WIDE, Box, DrawPanel
from vitlab.reporting.svg.axes import Panel, index_axis

__all__ = ["removal"]


def removal(title: str, arm: str) -> DrawPanel:
    """Returns the function that draws a point for each unit; grey: MSA, vertical lines: between stages."""

    def draw(box: Box, results: Results) -> None:
        found = [each for _, each in results.select(arm, "lesion")]
        lost = (
            [float(each) for each in -100 * np.mean([each.values["change"] for each in found], axis=0)] if found else []
        )
        count = len(lost) or 12
        x = index_axis(count, box.left, box.left + WIDE, "unit that is removed, from input to output")
        panel = Panel(box.canvas, x, box.y([0.0, *lost], "decrease in accuracy [points]"), title)
        names = [str(name) for name in found[0].axes["unit"]] if found else []
        panel.frame([(i + 0.5, i + 1.5) for i, name in enumerate(names) if name.endswith(" MSA")])
        if not found:
            panel.note("not run at this scale")
            return
        for index in np.flatnonzero(np.diff(found[0].values["stage"])):
            box.canvas.line(x(index + 1.5), panel.y.start, x(index + 1.5), panel.y.end, "zero")
        words = "grey: MSA, vertical lines: between stages"
        box.canvas.text(box.left, box.top + HIGH + 54, words, "soft small")
        panel.curve(range(1, count + 1), lost, "ours")

    return draw
