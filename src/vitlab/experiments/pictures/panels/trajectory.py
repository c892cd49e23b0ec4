"""Trajectories of the weights in polar coordinates, seen from the final weights (HDVW Figs. 1b, C.4b; retracted)."""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Results
from vitlab.core.measurement import Measurement
from vitlab.experiments.pictures.panels.figure import Box, DrawPanel, Lines, note_missing
from vitlab.reporting.svg.axes import Panel

__all__ = ["trajectory"]


def trajectory(title: str, arms: Lines) -> DrawPanel:
    """Returns the function that draws a curve for each run: a mean over runs would be smoother than they are."""

    def draw(box: Box, results: Results) -> None:
        found = {arm: [_path(each) for _, each in results.select(arm, "trajectory")] for arm in arms}
        points = np.concatenate([np.zeros((1, 2)), *(path for paths in found.values() for path in paths)])
        x, y = box.x(list(points[:, 0]), "r cos θ"), box.y(list(points[:, 1]), "r sin θ")
        panel = Panel(box.canvas, x, y, title)
        panel.frame()
        note_missing(panel, list(arms), [arms[arm][0] for arm, paths in found.items() if not paths])
        for arm, paths in found.items():
            for path in paths:
                panel.curve(list(path[:, 0]), list(path[:, 1]), arms[arm][1])

    return draw


def _path(found: Measurement) -> np.ndarray:
    """(snapshot, 2); the final weights, which have no angle, are the origin."""
    radius = np.asarray(found.values["radius"], dtype=float)
    angle = np.where(radius == 0, 0.0, np.asarray(found.values["angle"], dtype=float))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
