"""Accuracy drop against the frequency of noise, as HDVW Fig. 2b draws it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, empty_plot, labels, line
from vitlab.reporting.judging import told
from vitlab.reporting.percent import at, only_bars_that_are_there, percent, percent_error
from vitlab.reporting.readings import reading


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """The drop of accuracy under noise of each band of frequencies, paired image by image."""
    plot = empty_plot("frequency of the noise, π", "drop of accuracy, points (bars: 95 %)")
    for index, measurement in enumerate(measurements):
        error = percent_error(measurement, "drop")
        line(plot, labels(measurement, "drop"), percent(measurement, "drop"), measurement.subject, index, error=error)
    plot.update_yaxes(hoverformat=".2f", zeroline=True, zerolinecolor="rgba(128,128,128,0.6)")
    return [Figure(_finding(measurements), "HDVW Fig. 2b", only_bars_that_are_there(plot))]


def _finding(measurements: Sequence[Measurement]) -> str:
    """What high frequencies cost, and what low ones do: HDVW finds that the high ones hurt convolutions more."""
    said = []
    for side, sign in (("above", 1), ("below", -1)):
        lost = at("drop", partial(_side, sign=sign))
        if any(np.isfinite(lost(measurement)[0]) for measurement in measurements):
            said.append(told(f"noise {side} 0.5 π", measurements, lost, "points"))
    had = told("accuracy without noise", measurements, reading("clean_accuracy", 100), "%")  # who has none loses none
    return f"Accuracy lost to {'; '.join(said)}; {had}" if said else "Accuracy lost to noise: not known"


def _side(measurement: Measurement, sign: int) -> np.ndarray:
    """Which frequencies lie on one side of 0.5 π."""
    side: np.ndarray = sign * (np.array(labels(measurement, "drop"), dtype=float) - 0.5) > 0
    return side
