"""Flip rate of predictions along the videos of ImageNet-P by perturbation, with mFR (TAPADL Table 2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, bars, empty_plot, plain, remove_unused_bar_notes, start_at_zero
from vitlab.reporting.headline import Headline, describe_number
from vitlab.reporting.percent import percent, percent_error, union
from vitlab.reporting.readings import mean, reading

Row = dict[str, tuple[float, float]]


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """mFR and flip rates; flip probabilities if flip rates are not known for all models."""
    against = all(bool(np.isfinite(percent(measurement, "flip_rate")).any()) for measurement in measurements)
    name = "flip_rate" if against else "flip_probability"
    y = "flip rate, % of reference" if against else "flip probability, %"
    plot = empty_plot("", f"{y} (bars: 95 %)")
    for index, measurement in enumerate(measurements):
        row = {**_total(measurement, against), **_row(measurement, name)}
        heights, errors = ([pair[part] for pair in row.values()] for part in (0, 1))
        bars(plot, [plain(each.replace("_", " ")) for each in row], heights, measurement.subject, index, error=errors)
    start_at_zero(plot)
    plot.update_xaxes(tickangle=-40)
    return [Figure(_finding(measurements, name, against), "TAPADL Table 2", remove_unused_bar_notes(plot))]


def _row(measurement: Measurement, name: str) -> Row:
    """A value and its standard error in percent, by perturbation."""
    pairs = zip(percent(measurement, name).tolist(), percent_error(measurement, name).tolist(), strict=True)
    return dict(zip(map(str, measurement.axes["perturbation"]), pairs, strict=True))


def _total(measurement: Measurement, against: bool) -> Row:
    return {"mFR": (float(percent(measurement, "mfr")), float(percent_error(measurement, "mfr")))} if against else {}


def _finding(measurements: Sequence[Measurement], name: str, against: bool) -> str | Headline:
    """mFR if known for any model, else the mean over the perturbations that all models have."""
    if against and any(np.isfinite(percent(measurement, "mfr")) for measurement in measurements):
        return describe_number("mFR", measurements, reading("mfr", 100), "%", name="mfr")
    rows = [_row(measurement, name) for measurement in measurements]
    shared = [
        each
        for each in union(measurements, "perturbation")
        if all(np.isfinite(row.get(each, (np.nan,))[0]) for row in rows)
    ]
    if not shared:
        return "No perturbation was measured for all models: they are not comparable"
    title = f"Mean {'flip rate' if against else 'flip probability'} over {len(shared)} of the 10 perturbations"

    def read(measurement: Measurement) -> tuple[float, float]:
        row = _row(measurement, name)
        return mean([row[each][0] for each in shared]), np.nan

    return describe_number(title, measurements, read, "%")
