"""Hessian max eigenvalue spectra: the share of the eigenvalues in bins of equal width (HDVW Figs. 1c, 4, 6, 7b, 12c).

The paper has densities, which differ from these shares by a factor.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from vitlab.core.experiment import Results
from vitlab.experiments.pictures.panels.figure import Box, DrawPanel, Lines, note_missing
from vitlab.reporting.svg.axes import Panel

__all__ = ["spectrum"]

_BINS = 5  # from tick to tick, so that no bin has negative and positive eigenvalues


def spectrum(title: str, arms: Lines, part: Literal["all", "negative", "positive"] = "all") -> DrawPanel:
    """Returns the function that draws the spectra of arms, of all runs and mini-batches together.

    Args:
        title: of the panel.
        arms: the arms.
        part: the eigenvalues that the axis has; shares are those of all eigenvalues.
    """

    def draw(box: Box, results: Results) -> None:
        found = {arm: _eigenvalues(results, arm) for arm in arms}
        low, high = {"all": (-np.inf, np.inf), "negative": (-np.inf, 0.0), "positive": (0.0, np.inf)}[part]
        shown = {arm: values[(values >= low) & (values < high)] for arm, values in found.items()}
        ends = [] if part == "all" else [0.0]
        numbers = [*ends, *(float(value) for values in shown.values() for value in values)]
        if len(numbers) == len(ends):  # none: an axis of length 1 on that side
            numbers = [-1.0, 0.0] if part == "negative" else [0.0, 1.0]
        x = box.x(numbers, "Hessian max eigenvalue λ")
        edges = np.linspace(x.low, x.high, _BINS * (len(x.ticks) - 1) + 1)
        shares = {
            arm: 100 * np.histogram(shown[arm], edges)[0] / len(values) for arm, values in found.items() if len(values)
        }
        y = box.y([0.0, *(float(each) for share in shares.values() for each in share)], "eigenvalues [% per bin]")
        panel = Panel(box.canvas, x, y, title)
        panel.frame()
        note_missing(panel, list(arms), [arms[arm][0] for arm in arms if arm not in shares])
        for arm, share in shares.items():
            corners = [0.0, *np.repeat(share, 2), 0.0]
            panel.curve(list(np.repeat(edges, 2)), corners, arms[arm][1], marks=False)

    return draw


def _eigenvalues(results: Results, arm: str) -> np.ndarray:
    found = [np.ravel(each.values["eigenvalues"]).astype(float) for _, each in results.select(arm, "hessian_spectrum")]
    values = np.concatenate([np.zeros(0), *found])
    return np.asarray(values[np.isfinite(values)])
