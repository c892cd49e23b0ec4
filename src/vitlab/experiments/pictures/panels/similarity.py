"""Feature map similarities: the CKA of each pair of layers (HDVW Figs. 10a, D.3)."""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Results
from vitlab.experiments.pictures.panels.figure import HIGH, Box, DrawPanel
from vitlab.reporting.svg.axes import Panel, index_axis
from vitlab.reporting.svg.colour_scale import draw_scale, level

__all__ = ["similarity"]


def similarity(title: str, arm: str) -> DrawPanel:
    """Returns the function that draws a square for each pair of blocks, from the input at the lower left."""

    def draw(box: Box, results: Results) -> None:
        found = [each.values["cka"] for _, each in results.select(arm, "representation_cka")]
        cka = np.mean(found, axis=0) if found else np.zeros((0, 0))
        count = len(cka) or 12
        x = index_axis(count, box.left, box.left + HIGH, "block")
        panel = Panel(box.canvas, x, index_axis(count, box.top + HIGH, box.top, "block"), title)
        panel.frame()
        if not found:
            panel.note("not run at this scale")
            return
        for (row, column), value in np.ndenumerate(cka):
            kind = f"level{level(max(0.0, float(value)))}"
            side, left, top = HIGH / count, panel.x(column + 0.5), panel.y(row + 1.5)
            box.canvas.add("rect", kind, x=left, y=top, width=side, height=side)
        draw_scale(box.canvas, box.left + 14, box.top + HIGH + 46, "0", "1  CKA")

    return draw
