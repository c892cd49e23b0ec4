"""Loss landscapes: NLL + ℓ₂ on a plane through the trained weights, as a surface (HDVW Figs. 1a, C.4a, C.7b)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitlab.core.experiment import Results
from vitlab.experiments.pictures.panels.figure import HIGH, WIDE, Box, DrawPanel
from vitlab.reporting.svg.colour_scale import draw_scale
from vitlab.reporting.svg.surface import draw_surface

__all__ = ["landscape"]


def landscape(title: str, arm: str, shared: Sequence[str]) -> DrawPanel:
    """Returns the function that draws the loss landscape of an arm, the mean over its runs.

    Args:
        title: of the panel.
        arm: the arm.
        shared: arms with the same range of heights and colours, from their lowest to their highest loss.
    """

    def draw(box: Box, results: Results) -> None:
        surfaces = {each: _surface(results, each) for each in shared}
        box.canvas.text(box.left, box.top - 10, title, "head")
        if not np.isfinite(surfaces[arm]).any():
            words = "no finite loss" if surfaces[arm].size else "not run at this scale"
            box.canvas.text(box.left + WIDE / 2, box.top + HIGH / 2, words, "soft middle")
            return
        losses = np.concatenate([each[np.isfinite(each)] for each in surfaces.values()])
        low, high = float(losses.min()), float(losses.max())
        share = np.nan_to_num((surfaces[arm] - low) / ((high - low) or 1.0), nan=1.0, posinf=1.0)
        names = ("direction 1", "direction 2")
        draw_surface(box.canvas, share, share, box.left + 20, box.top + HIGH + 10, names, wide=264)
        draw_scale(box.canvas, box.left + 60, box.top + HIGH + 34, f"{low:.3g}", f"{high:.3g}  NLL + ℓ₂")

    return draw


def _surface(results: Results, arm: str) -> np.ndarray:
    """(first, second), empty without results."""
    found = [np.asarray(each.values["total"], dtype=float) for _, each in results.select(arm, "loss_landscape")]
    return np.asarray(np.mean(found, axis=0)) if found else np.zeros((0, 0))
