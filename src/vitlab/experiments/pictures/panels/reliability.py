"""Reliability diagrams: accuracy against confidence (HDVW Fig. F.1a)."""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Results
from vitlab.experiments.pictures.panels.figure import Box, DrawPanel, Lines, note_missing
from vitlab.reporting.svg.axes import Panel

__all__ = ["reliability"]


def reliability(title: str, arms: Lines) -> DrawPanel:
    """Returns the function that draws a curve for each arm, of the predictions of all runs; dotted: calibrated."""

    def draw(box: Box, results: Results) -> None:
        axes = box.x([0.0, 100.0], "confidence [%]"), box.y([0.0, 100.0], "accuracy [%]")
        panel = Panel(box.canvas, *axes, title)
        panel.frame()
        box.canvas.curve([(panel.x(each), panel.y(each)) for each in (0, 100)], "ink dot")
        curves = {arm: _bins(results, arm) for arm in arms}
        note_missing(panel, list(arms), [arms[arm][0] for arm, bins in curves.items() if not len(bins)])
        for arm, bins in curves.items():
            panel.curve(list(bins[:, 0]), list(bins[:, 1]), arms[arm][1])

    return draw


def _bins(results: Results, arm: str) -> np.ndarray:
    """Confidence and accuracy of each bin that has predictions, in per cent: (bin, 2), empty without results."""
    found = [each.values for _, each in results.select(arm, "calibration")]
    if not found:
        return np.zeros((0, 2))
    count = np.array([values["bin_count"] for values in found], dtype=float)
    means = [np.array([values[name] for values in found], dtype=float) for name in ("bin_confidence", "bin_accuracy")]
    full = count.sum(0) > 0
    sums = [np.where(count > 0, count * np.nan_to_num(mean), 0.0).sum(0)[full] for mean in means]
    return 100 * np.stack([each / count.sum(0)[full] for each in sums], 1)
