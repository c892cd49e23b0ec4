"""Pictures of training curves (CB Fig. S11)."""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Results, Scale
from vitlab.experiments.catalogue import Experiment
from vitlab.reporting.svg.axes import Panel, round_axis
from vitlab.reporting.svg.canvas import Canvas

__all__ = ["draw_training", "mean_by_epoch"]

_WIDE, _HIGH, _LEFT, _TOP, _ROW, _COLUMN = 300, 180, 70, 96, 250, 390

#: The panels in the order of the figure: title -> value of the training.
_PANELS = {
    "Top-1 accuracy [%]": "top1",
    "Top-5 accuracy [%]": "top5",
    "Training loss": "train_loss",
    "Evaluation loss": "loss",
}
_ARMS = {"plain": ("without CB, ours", "ink"), "cb": ("with CB, ours", "ours")}


def draw_training(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Returns accuracy and loss by epoch, without and with CB: the mean over the runs of an arm."""
    network = "ViT-Ti on CIFAR-100" if scale == "small" else "ViT-S"
    about = f"Ours: {network}, mean over the runs. The paper has curves only."
    canvas = Canvas(_LEFT + 2 * _COLUMN, _TOP + 2 * _ROW + 40, experiment.title, about)
    for index, (title, value) in enumerate(_PANELS.items()):
        curves = {arm: mean_by_epoch(results, arm, value) for arm in _ARMS}
        numbers = [float(each) for _, curve in curves.values() for each in curve]
        epochs = [float(each) for found, _ in curves.values() for each in found]
        left, top = _LEFT + _COLUMN * (index % 2), _TOP + _ROW * (index // 2)
        x = round_axis([0.0, *epochs], left, left + _WIDE, "epoch")
        panel = Panel(canvas, x, round_axis(numbers, top + _HIGH, top, ""), title)
        panel.frame()
        if not numbers:
            panel.note("not run at this scale")
        for arm, (_, kind) in _ARMS.items():
            panel.curve(list(curves[arm][0]), list(curves[arm][1]), kind, marks=False)
    for index, (words, kind) in enumerate(_ARMS.values()):
        x_place, y_place = _LEFT + 180 * index, _TOP + 2 * _ROW + 10
        canvas.curve([(x_place, y_place - 4), (x_place + 34, y_place - 4)], kind)
        canvas.text(x_place + 42, y_place, words)
    return str(canvas)


def mean_by_epoch(results: Results, arm: str, value: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the epochs with the value, and its mean over the runs; both are empty if no run has it."""
    found = [each for _, each in results.select(arm, "training") if value in each.values]
    if not found:
        return np.zeros(0), np.zeros(0)
    epochs = np.asarray(found[0].axes["epoch"], dtype=float)
    mean = np.mean([np.asarray(each.values[value], dtype=float).reshape(len(epochs)) for each in found], axis=0)
    known = np.isfinite(mean)
    return epochs[known], mean[known]
