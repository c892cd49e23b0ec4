"""Δ log amplitude of feature maps: against frequency with depth as colour, and against depth (HDVW Figs. 2a, D.2)."""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Results
from vitlab.core.measurement import Measurement
from vitlab.experiments.pictures.panels.figure import HIGH, WIDE, Box, DrawPanel
from vitlab.reporting.svg.axes import Panel, index_axis
from vitlab.reporting.svg.colour_scale import draw_scale, level

__all__ = ["by_depth", "by_frequency"]


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


def by_depth(title: str, arm: str) -> DrawPanel:
    """Returns the function that draws the Δ log amplitude at 1.0π at each place; grey: MSA, blue: subsampling."""

    def draw(box: Box, results: Results) -> None:
        found = [each for _, each in results.select(arm, "feature_fourier")]
        places = _places(found[0]) if found else []
        names = [str(found[0].axes["place"][place]) for place in places]
        values = list(np.mean([each.values["high"] for each in found], axis=0)[places]) if found else []
        x = index_axis(len(values) or 12, box.left, box.left + WIDE, "place, from input to output")
        panel = Panel(box.canvas, x, box.y([0.0, *values], "Δ log amplitude at 1.0π"), title)
        for place, name in enumerate(names[1:], 1):
            if name.endswith(" in"):
                box.canvas.add("rect", "sub", x=x(place), y=box.top, width=x(place + 1) - x(place), height=HIGH)
        panel.frame([(place, place + 1) for place, name in enumerate(names[1:], 1) if name.endswith(" mid")])
        if not found:
            panel.note("not run at this scale")
        panel.curve(range(1, len(values) + 1), values, "ours")

    return draw


def _places(found: Measurement) -> list[int]:
    """The places without the inputs of blocks that are the output of the block before."""
    grids = np.asarray(found.values["grid"])
    names = [str(name) for name in found.axes["place"]]
    return [i for i, name in enumerate(names) if i == 0 or not name.endswith(" in") or (grids[i] != grids[i - 1]).any()]
