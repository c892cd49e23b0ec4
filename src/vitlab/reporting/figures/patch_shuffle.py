"""Accuracy with the patches of each image in random order, by size of the grid."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, empty_plot, line, remove_unused_bar_notes, start_at_zero
from vitlab.reporting.headline import Headline, Phrase, Samples, describe_number
from vitlab.reporting.percent import at, from_clean, percent, percent_error, union


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Accuracy by the number of patches along a side; clean images first."""
    plot = empty_plot("patches in random order", "accuracy, % (bars: 95 %)")
    for index, measurement in enumerate(measurements):
        y, error = percent(measurement, "accuracy"), percent_error(measurement, "accuracy")
        grids, y, error = from_clean(measurement, measurement.axes["grid"], y, error, at=1)
        line(plot, [_name(grid) for grid in grids], y, measurement.subject, index, error=error, cliponaxis=False)
    grids = sorted({1, *union(measurements, "grid")})
    plot.update_xaxes(type="category", categoryorder="array", categoryarray=[_name(grid) for grid in grids])
    start_at_zero(plot)
    return [Figure(_finding(measurements), "", remove_unused_bar_notes(plot))]


def _finding(measurements: Sequence[Measurement]) -> str | Headline:
    shared = [grid for grid in measurements[0].axes["grid"] if all(grid in m.axes["grid"] for m in measurements)]
    if not shared:
        return "The models were measured with different grids: their accuracies are not comparable"
    grid = max(shared)
    accuracy = at("accuracy", lambda m: m.axes["grid"].index(grid))
    what = f"Accuracy with {grid} × {grid} patches in random order"
    claim = Phrase("Accuracy on shuffled patches is")
    return describe_number(what, measurements, accuracy, "%", claim=claim, samples=Samples())


def _name(grid: float) -> str:
    return "clean" if grid == 1 else f"{grid:g} × {grid:g}"
