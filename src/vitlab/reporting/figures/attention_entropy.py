"""Entropy by depth with its bound and both tails, as CB Figs. 4 and 7a draw it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, band, by_layer, compared, empty_plot, labels, line, reference


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Mean entropy by layer for each model, between its 15th and 85th percentile, under log N."""
    plot = empty_plot("layer", "entropy, nats (band: 15th to 85th percentile)")
    for index, measurement in enumerate(measurements):
        x = labels(measurement, "mean")
        line(plot, x, by_layer(measurement, "mean"), measurement.subject, index)
        band(plot, x, by_layer(measurement, "p15"), by_layer(measurement, "p85"), index)
    first = measurements[0]
    reference(plot, labels(first, "bound"), first.values["bound"], "log N, uniform attention")
    return [Figure(_finding(measurements), "CB Figs. 4 and 7a", plot)]


def _finding(measurements: Sequence[Measurement]) -> str:
    means = [by_layer(measurement, "mean") for measurement in measurements]
    deep = [float(np.nanmean(mean[len(mean) // 2 :])) for mean in means]
    return compared(deep, "Attention entropy in the deep half", "nats", names=[m.subject for m in measurements])
