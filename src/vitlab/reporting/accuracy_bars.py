"""Accuracy on a published set of images, a bar for each way of counting: what the sets of class folders share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, bars, empty_plot, plain
from vitlab.reporting.judging import told
from vitlab.reporting.percent import from_zero, only_bars_that_are_there, percent, percent_error

#: The two ways in which accuracy is counted on a set of 200 of ImageNet's classes.
TWO_HUNDRED = {"accuracy_200": "among the set's 200 classes", "accuracy_1000": "among all 1000 classes"}


def accuracy_bars(
    measurements: Sequence[Measurement], called: str, paper: str, ways: Mapping[str, str]
) -> list[Figure]:
    """One figure: accuracies with 95 % bars, and the first of them in the title.

    Args:
        measurements: each holds accuracies, () or by set.
        called: the set, as its authors write it.
        paper: where the papers print the number.
        ways: by the name of each value, what was counted.
    """
    plot = empty_plot("", "accuracy, % (bars: 95 %)")
    rows = [_row(measurement, ways) for measurement in measurements]
    for index, (measurement, row) in enumerate(zip(measurements, rows, strict=True)):
        heights, errors = ([pair[part] for pair in row.values()] for part in (0, 1))
        bars(plot, [plain(name) for name in row], heights, measurement.subject, index, error=errors)
    from_zero(plot)
    return [Figure(_finding(measurements, rows, called, ways), paper, only_bars_that_are_there(plot))]


def _finding(
    measurements: Sequence[Measurement],
    rows: Sequence[dict[str, tuple[float, float]]],
    called: str,
    ways: Mapping[str, str],
) -> str:
    first = next((name for name in rows[0] if np.isfinite(rows[0][name][0])), next(iter(rows[0]), ""))
    way = f", {first}" if first and len(rows[0]) > 1 else ""
    said = told(f"Accuracy on {called}{way}", measurements, lambda m: _row(m, ways).get(first, (np.nan, np.nan)), "%")
    few = [measurement.subject for measurement in measurements if measurement.provenance.get("partial")]
    return f"{said}. Only part of the set was there for {', '.join(few)}" if few else said


def _row(measurement: Measurement, ways: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Name, accuracy and standard error of each bar, in percent."""
    row: dict[str, tuple[float, float]] = {}
    for name, way in ways.items():
        if name not in measurement.values:
            continue
        value, error = percent(measurement, name), percent_error(measurement, name)
        places = measurement.axes[measurement.dims[name][0]] if value.ndim else (way,)
        for place, height, doubt in zip(places, value.ravel(), error.ravel(), strict=True):
            row[str(place)] = float(height), float(doubt)
    return row
