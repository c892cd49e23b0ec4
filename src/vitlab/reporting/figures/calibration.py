"""Reliability diagram with ECE as in HDVW Fig. F.1a, and the distribution of confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.statistics import proportion_interval
from vitlab.reporting.drawing import Figure, line, reference
from vitlab.reporting.headline import Headline, Phrase, describe_number
from vitlab.reporting.panels import on_panel, panels_with_own_axes
from vitlab.reporting.percent import percent
from vitlab.reporting.readings import reading


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Accuracy by confidence bin, below the diagonal if overconfident, and the share of images per bin."""
    titles = ["reliability", "distribution of confidence"]
    below = ["confidence, % (mean of the bin)", "confidence, % (middle of the bin)"]
    plot = panels_with_own_axes(titles, below, ["accuracy, % (bars: 95 %, Wilson)", "share of images, %"])
    reference(plot, [0, 100], [0, 100], "perfect calibration", row=1, col=1)
    for index, measurement in enumerate(measurements):
        accuracy, confidence = percent(measurement, "bin_accuracy"), percent(measurement, "bin_confidence")
        full = np.isfinite(accuracy)
        line(plot, confidence[full].tolist(), accuracy[full], measurement.subject, index, legendgroup=str(index))
        plot.data[-1].error_y = _error_bars(measurement, full)
        middle, share = _distribution(measurement)
        hidden = {"legendgroup": str(index), "showlegend": False, "line": {"shape": "hvh"}, "mode": "lines"}
        line(plot, middle.tolist(), share, measurement.subject, index, **{**hidden, **on_panel(1)})
    plot.update_xaxes(range=[-2, 102])
    plot.update_yaxes(range=[-2, 102], col=1)
    plot.update_yaxes(rangemode="tozero", col=2)
    plot.update_layout(hovermode="closest")
    return [Figure(_finding(measurements), "HDVW Fig. F.1a", plot)]


def _error_bars(measurement: Measurement, full: np.ndarray) -> dict[str, Any]:
    """Wilson's 95 % interval of each bin that has images; it has a width at 0 and 100 % too."""
    counts = np.round(np.asarray(measurement.values["bin_count"], dtype=float)[full]).astype(int)
    shares = np.asarray(measurement.values["bin_accuracy"], dtype=float)[full]
    pairs = [
        proportion_interval(round(float(share * count)), max(1, int(count)))[1:]
        for share, count in zip(shares, counts, strict=True)
    ]
    low, high = np.array(pairs, dtype=float).reshape(-1, 2).T
    ends = {"array": (100 * (high - shares)).clip(0), "arrayminus": (100 * (shares - low)).clip(0)}
    return {"type": "data", **{name: end.tolist() for name, end in ends.items()}, "thickness": 1}


def _distribution(measurement: Measurement) -> tuple[np.ndarray, np.ndarray]:
    """The middle of each bin and its share of the images, both in percent."""
    edges = np.asarray(measurement.values["edges"], dtype=float)
    counts = np.asarray(measurement.values["bin_count"], dtype=float)
    return 50 * (edges[1:] + edges[:-1]), 100 * counts / max(counts.sum(), 1)


def _finding(measurements: Sequence[Measurement]) -> Headline:
    """ECE, and whether each model is over- or underconfident."""
    sides = [f"{measurement.subject} is {_side(measurement)}" for measurement in measurements]
    claim = Phrase("Confidence is", ("better calibrated", "worse calibrated"))
    error = describe_number("ECE", measurements, reading("ece", 100), "%", claim=claim, name="ece")
    row = None if error.row is None else replace(error.row, what="Expected calibration error (ECE)")
    return replace(error, sentence=f"{error.sentence}; {', '.join(sides)}", row=row)


def _side(measurement: Measurement) -> str:
    signed = float(percent(measurement, "signed_ece"))
    if not np.isfinite(signed) or abs(signed) < 0.05:
        return (
            "neither over- nor underconfident on average"
            if np.isfinite(signed)
            else "not known to be over- or underconfident"
        )
    return f"{'over' if signed > 0 else 'under'}confident by {abs(signed):.1f} points"
