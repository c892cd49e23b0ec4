"""Drop of accuracy by frequency of noise, as in HDVW Fig. 2b."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, empty_plot, labels, line, remove_unused_bar_notes
from vitlab.reporting.headline import Headline, Phrase, describe_number
from vitlab.reporting.percent import at, percent, percent_error
from vitlab.reporting.readings import reading


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """The drop of accuracy under noise in each frequency band, paired by image."""
    plot = empty_plot("frequency of the noise, π", "drop of accuracy, points (bars: 95 %)")
    for index, measurement in enumerate(measurements):
        error = percent_error(measurement, "drop")
        line(plot, labels(measurement, "drop"), percent(measurement, "drop"), measurement.subject, index, error=error)
    plot.update_yaxes(hoverformat=".2f", zeroline=True, zerolinecolor="rgba(128,128,128,0.6)")
    return [Figure(_finding(measurements), "HDVW Fig. 2b", remove_unused_bar_notes(plot))]


def _finding(measurements: Sequence[Measurement]) -> Headline:
    """The drop under high and under low frequencies; HDVW reports a larger drop of convolutions under high ones."""
    parts: list[Headline] = []
    for side, sign in (("above", 1), ("below", -1)):
        drop = at("drop", partial(_side, sign=sign))
        if any(np.isfinite(drop(measurement)[0]) for measurement in measurements):
            claim = Phrase(f"{'High' if sign > 0 else 'Low'}-frequency noise lowers accuracy", ("less", "more"))
            what = f"Drop of accuracy under noise {side} 0.5 π"
            parts.append(describe_number(what, measurements, drop, "points", claim=claim))
    # the drop is at most the accuracy without noise
    clean = describe_number("accuracy without noise", measurements, reading("clean_accuracy", 100), "%")
    if not parts:
        return Headline("Drop of accuracy: not known")
    drops = "; ".join(part.sentence.removeprefix("Drop of accuracy under ") for part in parts)
    return replace(parts[0], sentence=f"Drop of accuracy under {drops}; {clean.sentence}")


def _side(measurement: Measurement, sign: int) -> np.ndarray:
    """A mask of the frequencies above (`sign` 1) or below (`sign` −1) 0.5 π."""
    side: np.ndarray = sign * (np.array(labels(measurement, "drop"), dtype=float) - 0.5) > 0
    return side
