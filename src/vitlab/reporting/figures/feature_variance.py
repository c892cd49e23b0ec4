"""Variance of feature map points by depth (HDVW Figs. 9, D.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure
from vitlab.reporting.headline import Phrase, describe_number
from vitlab.reporting.readings import reading
from vitlab.reporting.residual_stream_plot import along_depth, effects

_WIDE = 50  # the ratio of the largest to the smallest variance above which the axis is logarithmic


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Variance before and after every MSA, MLP and Conv."""
    plot = along_depth(measurements, "variance", "variance of feature map points")
    values = np.concatenate([np.ravel(np.asarray(m.values["variance"], dtype=float)) for m in measurements])
    values = values[np.isfinite(values)]
    if values.size and values.min() > 0 and values.max() > _WIDE * values.min():
        plot.update_yaxes(type="log", exponentformat="power")
    changes = "; ".join(f"{m.subject}: {effects(m, brief=len(measurements) > 2)}" for m in measurements)
    claim = Phrase("The variance of feature map points is")
    mean = describe_number("Variance, mean over depth", measurements, reading("variance"), claim=claim, name="variance")
    headline = replace(mean, sentence=f"Variance of feature map points. {changes}")
    return [Figure(headline, "HDVW Figs. 9, D.1", plot)]
