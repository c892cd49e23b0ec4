"""Δ log amplitude of feature maps against frequency, with depth as colour (HDVW Figs. 2a, D.2)."""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Results
from vitlab.experiments.pictures.panels.figure import HIGH, WIDE, Box, DrawPanel
from vitlab.reporting.svg.axes import Panel
from vitlab.reporting.svg.colour_scale import draw_scale, level

__all__ = ["by_frequency"]


def by_frequency(title: str, arm: str) -> DrawPanel:
    """Returns the function that draws a curve for each place; the last place is left out, as in Fig. 2a."""

    def draw(box: Box, results: Results) -> None:
        found = [each for _, each in results.select(arm, "feature_fourier")]
        rows = np.mean([each.values["amplitude"] for each in found], axis=0)[:-1] if found else np.zeros((0, 0))
        x = box.x([0.0, 1.0], "frequency [π]")
        panel = Panel(box.canvas, x, box.y([0.0, *rows.ravel()], "Δ log amplitude"), title)
        box.canvas.add("rect", "light", x=box.left, y=box.top, width=WIDE, height=HIGH)
        panel.frame()
        if not len(rows):
            panel.note("not run at this scale")
            return
        for index, row in enumerate(rows):
            depth = level(index / max(1, len(rows) - 1))
            panel.curve(list(found[0].values["frequency"][index]), list(row), f"depth{depth}", marks=False)
        draw_scale(box.canvas, box.left + 70, box.top + HIGH + 46, "input", "output")

    return draw
