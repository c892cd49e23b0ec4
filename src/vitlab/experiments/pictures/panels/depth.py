"""A number of feature maps by depth: the amplitude of high frequencies, or the variance (HDVW Figs. 9, D.1, D.2)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from vitlab.core.experiment import Results
from vitlab.core.measurement import Measurement
from vitlab.experiments.pictures.panels.figure import HIGH, WIDE, Box, DrawPanel
from vitlab.reporting.svg.axes import Panel, index_axis

__all__ = ["amplitude_by_depth", "variance_by_depth"]


def amplitude_by_depth(title: str, arm: str) -> DrawPanel:
    """Returns the function that draws the Δ log amplitude at 1.0π."""
    return _by_depth(title, arm, "feature_fourier", "high", "Δ log amplitude at 1.0π")


def variance_by_depth(title: str, arm: str) -> DrawPanel:
    """Returns the function that draws the feature map variance."""
    return _by_depth(title, arm, "feature_variance", "variance", "feature map variance")


def _by_depth(title: str, arm: str, kind: str, value: str, label: str) -> DrawPanel:
    """Draws a value at each place of the network; grey: MSA, blue: subsampling."""

    def draw(box: Box, results: Results) -> None:
        found = [each for _, each in results.select(arm, kind)]
        places, subsampling, attention = _places(found[0]) if found else ([], [], [])
        values = (
            [float(each) for each in np.mean([one.values[value] for one in found], axis=0)[places]] if found else []
        )
        x = index_axis(len(values) or 12, box.left, box.left + WIDE, "place, from input to output")
        panel = Panel(box.canvas, x, box.y([0.0, *values], label), title)
        for place in subsampling:
            box.canvas.add("rect", "sub", x=x(place), y=box.top, width=x(place + 1) - x(place), height=HIGH)
        panel.frame([(place, place + 1) for place in attention])
        if not found:
            panel.note("not run at this scale")
            return
        box.canvas.text(box.left, box.top + HIGH + 54, "grey: MSA, blue: subsampling", "soft small")
        panel.curve(range(1, len(values) + 1), values, "ours")

    return draw


def _places(found: Measurement) -> tuple[list[int], list[int], list[int]]:
    """The places without inputs of blocks that are the output of the block before; those, counted from 1, after which
    the grid changes; and those after which there is an MSA."""
    names, grids = [str(name) for name in found.axes["place"]], np.asarray(found.values["grid"])
    chosen = [i for i, name in enumerate(names) if i == 0 or name[-3:] != " in" or (grids[i] != grids[i - 1]).any()]
    steps = list(enumerate(pairwise(chosen), 1))
    subsampling = [number for number, (i, j) in steps if (grids[i] != grids[j]).any()]
    return chosen, subsampling, [number for number, (_, j) in steps if names[j].endswith(" mid")]
