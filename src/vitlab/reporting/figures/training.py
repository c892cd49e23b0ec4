"""Loss and accuracy by epoch as in CB Fig. S11, mean IoU of segmentation models, AP of detectors, and the learning
rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, empty_plot, labels, line, reference
from vitlab.reporting.findings import finding
from vitlab.reporting.headline import Headline, Phrase, describe_number
from vitlab.reporting.layer_plots import known
from vitlab.reporting.panels import on_panel, panels_with_own_axes
from vitlab.reporting.readings import reading

#: Markers and widths distinguish the sets; colours and dashes the models, as in the legend of the page.
_LOSSES = {"train_loss": ("training", False), "loss": ("test", True)}
_WIDTHS = {False: 1.0, True: 2.0}
_ACCURACIES = {
    "top1": "top-1 accuracy",
    "top5": "top-5 accuracy",
    "miou": "mean IoU",
    "pixel_accuracy": "pixel accuracy",
    "box_ap50": "box AP50",
    "mask_ap50": "mask AP50",
    "accuracy": "accuracy of answers",
}
_RATES = ("learning_rate", "lr")


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Training and test loss, and the accuracies that are stored; a second figure for the learning rate."""
    stored = [name for name in _ACCURACIES if any(_varies(one, name) for one in measurements)] or ["top1"]
    titles = ["loss", *(_ACCURACIES[name] for name in stored)]
    units = ["loss, nats", *(f"{_ACCURACIES[name]}, %" for name in stored)]
    plot = panels_with_own_axes(titles, ["epoch"] * len(titles), units)
    for index, measurement in enumerate(measurements):
        for name, (set_name, marked) in _LOSSES.items():
            if name in measurement.values:
                look: dict[str, Any] = {"line": {"width": _WIDTHS[marked]}, **({} if marked else {"mode": "lines"})}
                look["showlegend"] = not any(stored[0] in one.values for one in measurements)
                _add_curve(plot, measurement, name, f"{measurement.subject}, {set_name}", index, **look)
        for panel, name in enumerate(stored, start=1):
            if name in measurement.values:
                place = {"showlegend": panel == 1, **on_panel(panel)}
                _add_curve(plot, measurement, name, measurement.subject, index, **place)
    for set_name, marked in _LOSSES.values():
        reference(plot, [None], [np.nan], f"{set_name} set" if marked else f"{set_name} set (thin, without markers)")
        plot.data[-1].line.update(dash="solid", width=_WIDTHS[marked])
        plot.data[-1].mode = "lines+markers" if marked else "lines"
    plot.update_yaxes(hoverformat=".4g")
    return [Figure(_finding(measurements), "CB Fig. S11", plot), *_rates(measurements)]


def _varies(measurement: Measurement, name: str) -> bool:
    """Whether an accuracy is stored and is not always 100 %, such as the top-5 accuracy of five classes."""
    return name in measurement.values and bool((np.asarray(measurement.values[name], dtype=float) != 100).any())


def _rates(measurements: Sequence[Measurement]) -> list[Figure]:
    stored = [(index, _rate(measurement)) for index, measurement in enumerate(measurements)]
    if not any(name for _, name in stored):
        return []
    plot = empty_plot("epoch", "learning rate")
    for index, name in stored:
        if name:
            _add_curve(plot, measurements[index], name, measurements[index].subject, index)
    plot.update_yaxes(exponentformat="power", rangemode="tozero")
    peaks = [_highest(measurements[index].values[name]) if name else np.nan for index, name in stored]
    names = [measurement.subject for measurement in measurements]
    sentence = finding("Highest learning rate", [float(peak) for peak in peaks], names, noisy=False)
    return [Figure(Headline(sentence, "Learning rate by epoch"), "", plot)]


def _highest(rates: np.ndarray) -> float:
    known = np.asarray(rates, dtype=float)[np.isfinite(rates)]
    return float(known.max()) if known.size else float("nan")


def _rate(measurement: Measurement) -> str:
    return next((name for name in _RATES if name in measurement.values), "")


def _add_curve(plot: Any, measurement: Measurement, name: str, label: str, index: int, **style: Any) -> None:
    x, y = labels(measurement, name), np.asarray(measurement.values[name], dtype=float)
    error = measurement.values.get(measurement.errors.get(name, ""))
    look = {"mode": "lines+markers" if len(x) <= 40 else "lines", "legendgroup": str(index), **style}
    line(plot, x, y, label, index, error=error, **look)


def _finding(measurements: Sequence[Measurement]) -> Headline:
    """Top-1 accuracy or mean IoU after the last epoch, or the loss if there is neither."""
    if any(known(measurement, "top1") for measurement in measurements):
        return _last(measurements, "top1", "Top-1 accuracy", "%")
    if any(known(measurement, "miou") for measurement in measurements):
        return _last(measurements, "miou", "Mean IoU", "%")
    if any(known(measurement, "box_ap50") for measurement in measurements):
        return _last(measurements, "box_ap50", "Box AP50", "%")
    if any(known(measurement, "accuracy") for measurement in measurements):
        return _last(measurements, "accuracy", "Accuracy of answers", "%")
    stored = "loss" if any(known(measurement, "loss") for measurement in measurements) else "train_loss"
    return _last(measurements, stored, f"{_LOSSES[stored][0].capitalize()} loss", "nats")


def _last(measurements: Sequence[Measurement], name: str, what: str, unit: str) -> Headline:
    """The result of a number after the last epoch."""
    title, claim = f"{what} after the last epoch", Phrase(f"{what} is")
    return describe_number(title, measurements, reading(name), unit, claim=claim, name=name)
