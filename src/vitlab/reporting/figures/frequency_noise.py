"""Accuracy drop against the frequency of noise, as HDVW Fig. 2b draws it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, empty_plot, labels, line
from vitlab.reporting.findings import finding
from vitlab.reporting.shares import only_bars_that_are_there, percent, percent_error, told


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
    names = [measurement.subject for measurement in measurements]
    said = []
    for side, sign in (("above", 1), ("below", -1)):
        pairs = [_mean_drop(measurement, sign) for measurement in measurements]
        drops, errors = ([pair[part] for pair in pairs] for part in (0, 1))
        if np.isfinite(drops).any():
            said.append(finding(f"noise {side} 0.5 π", drops, names, "points", errors=errors))
    clean, doubt = ([part(m, "clean_accuracy") for m in measurements] for part in (percent, percent_error))
    had = told("accuracy without noise", measurements, clean, doubt)  # who has none can lose none
    return f"Accuracy lost to {'; '.join(said)}; {had}" if said else "Accuracy lost to noise: not known"


def _mean_drop(measurement: Measurement, sign: int) -> tuple[float, float]:
    """Mean drop on one side of 0.5 π, and the mean of the standard errors, which that of the mean cannot exceed."""
    side = sign * (np.array(labels(measurement, "drop"), dtype=float) - 0.5) > 0
    drop, error = percent(measurement, "drop")[side], percent_error(measurement, "drop")[side]
    known = np.isfinite(drop)
    return (float(drop[known].mean()), float(error[known].mean())) if known.any() else (np.nan, np.nan)
