"""Bars of accuracy on a published set of images, one per definition of accuracy; used by the sets of class folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, bars, empty_plot, plain, remove_unused_bar_notes, start_at_zero
from vitlab.reporting.headline import Headline, describe_number
from vitlab.reporting.percent import percent, percent_error

#: The two definitions of accuracy on a set of 200 of ImageNet's classes.
TWO_HUNDRED = {"accuracy_200": "among the set's 200 classes", "accuracy_1000": "among all 1000 classes"}


def accuracy_bars(
    measurements: Sequence[Measurement], set_name: str, paper: str, definitions: Mapping[str, str]
) -> list[Figure]:
    """One figure: accuracies with 95 % bars, and the first of them in the title.

    Args:
        measurements: each has accuracies, () or by set.
        set_name: the name of the set.
        paper: the table of the papers with the number.
        definitions: a label for each value, by name.
    """
    plot = empty_plot("", "accuracy, % (bars: 95 %)")
    rows = [_row(measurement, definitions) for measurement in measurements]
    for index, (measurement, row) in enumerate(zip(measurements, rows, strict=True)):
        heights, errors = ([pair[part] for pair in row.values()] for part in (0, 1))
        bars(plot, [plain(name) for name in row], heights, measurement.subject, index, error=errors)
    start_at_zero(plot)
    return [Figure(_finding(measurements, rows, set_name, definitions), paper, remove_unused_bar_notes(plot))]


def _finding(
    measurements: Sequence[Measurement],
    rows: Sequence[dict[str, tuple[float, float]]],
    set_name: str,
    definitions: Mapping[str, str],
) -> Headline:
    first = next((name for name in rows[0] if np.isfinite(rows[0][name][0])), next(iter(rows[0]), ""))
    way = f", {first}" if first and len(rows[0]) > 1 else ""
    found = describe_number(
        f"Accuracy on {set_name}{way}",
        measurements,
        lambda measurement: _row(measurement, definitions).get(first, (np.nan, np.nan)),
        "%",
    )
    few = [measurement.subject for measurement in measurements if measurement.provenance.get("partial")]
    part = f". Measured on part of the set for {', '.join(few)}" if few else ""
    return replace(found, sentence=f"{found.sentence}{part}")


def _row(measurement: Measurement, definitions: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Name, accuracy and standard error of each bar, in percent."""
    row: dict[str, tuple[float, float]] = {}
    for name, label in definitions.items():
        if name not in measurement.values:
            continue
        value, error = percent(measurement, name), percent_error(measurement, name)
        places = measurement.axes[measurement.dims[name][0]] if value.ndim else (label,)
        for place, height, one in zip(places, value.ravel(), error.ravel(), strict=True):
            row[str(place)] = float(height), float(one)
    return row
