"""Loss, top-1 and top-5 accuracy by epoch, as CB Fig. S11 draws them; the learning rate where it was kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, empty_plot, labels, line
from vitlab.reporting.findings import finding
from vitlab.reporting.judging import told
from vitlab.reporting.layer_plots import known
from vitlab.reporting.percent import on_panel, unlike_panels
from vitlab.reporting.readings import reading

#: Dashes tell the sets apart; the models differ in colour and marker.
_LOSSES = {"train_loss": ("training", "dot"), "loss": ("test", "solid")}
_ACCURACIES = {"top1": "top-1 accuracy", "top5": "top-5 accuracy"}
_RATES = ("learning_rate", "lr")


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Training and test loss beside top-1 and, where it was kept, top-5; a second figure for the learning rate."""
    kept = [name for name in _ACCURACIES if name == "top1" or any(name in one.values for one in measurements)]
    titles = ["loss", *(_ACCURACIES[name] for name in kept)]
    units = ["loss, nats", *(f"{_ACCURACIES[name]}, %" for name in kept)]
    plot = unlike_panels(titles, ["epoch"] * len(titles), units)
    for index, measurement in enumerate(measurements):
        for name, (called, dash) in _LOSSES.items():
            if name in measurement.values:
                _follow(plot, measurement, name, f"{measurement.subject}, {called}", index, line={"dash": dash})
        for panel, name in enumerate(kept, start=1):
            if name in measurement.values:
                place = {"line": {"dash": "solid"}, "showlegend": False, **on_panel(panel)}
                _follow(plot, measurement, name, measurement.subject, index, **place)
    plot.update_yaxes(hoverformat=".4g")
    return [Figure(_finding(measurements), "CB Fig. S11", plot), *_rates(measurements)]


def _rates(measurements: Sequence[Measurement]) -> list[Figure]:
    kept = [(index, _rate(measurement)) for index, measurement in enumerate(measurements)]
    if not any(name for _, name in kept):
        return []
    plot = empty_plot("epoch", "learning rate")
    for index, name in kept:
        if name:
            _follow(plot, measurements[index], name, measurements[index].subject, index)
    plot.update_yaxes(exponentformat="power", rangemode="tozero")
    peaks = [_highest(measurements[index].values[name]) if name else np.nan for index, name in kept]
    names = [measurement.subject for measurement in measurements]
    return [Figure(finding("Highest learning rate", [float(peak) for peak in peaks], names, noisy=False), "", plot)]


def _highest(rates: np.ndarray) -> float:
    known = np.asarray(rates, dtype=float)[np.isfinite(rates)]
    return float(known.max()) if known.size else float("nan")


def _rate(measurement: Measurement) -> str:
    return next((name for name in _RATES if name in measurement.values), "")


def _follow(plot: Any, measurement: Measurement, name: str, called: str, index: int, **style: Any) -> None:
    x, y = labels(measurement, name), np.asarray(measurement.values[name], dtype=float)
    error = measurement.values.get(measurement.errors.get(name, ""))
    look = {"mode": "lines+markers" if len(x) <= 40 else "lines", "legendgroup": str(index), **style}
    line(plot, x, y, called, index, error=error, **look)


def _finding(measurements: Sequence[Measurement]) -> str:
    """Top-1 after the last epoch, or the loss where accuracy was not kept."""
    if any(known(measurement, "top1") for measurement in measurements):
        return told("Top-1 accuracy after the last epoch", measurements, reading("top1"), "%")
    kept = "loss" if any(known(measurement, "loss") for measurement in measurements) else "train_loss"
    return told(f"{_LOSSES[kept][0].capitalize()} loss after the last epoch", measurements, reading(kept), "nats")
