"""The drawing of an instrument that has none of its own, chosen from the names of its axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, bars, by_layer, compared, empty_plot, heat_map, labels, line, side_by_side

#: Axes along which a value is followed by a line; others get bars.
ORDERED = {"layer", "depth", "epoch", "step", "severity", "frequency", "epsilon", "ratio", "bin", "rank", "snapshot"}


def draw_by_axes(measurements: Sequence[Measurement]) -> list[Figure]:
    """A figure for each value: bars for numbers, lines along ordered axes, heat maps for matrices."""
    first = measurements[0]
    numbers = [name for name, value in first.values.items() if _drawable(value) and not _is_error(name)]
    single = [name for name in numbers if not np.ndim(first.values[name])]
    figures = [_numbers(measurements, single)] if single else []
    for name in numbers:
        dims = first.dims[name]
        have = [measurement for measurement in measurements if measurement.dims.get(name) == dims]
        if len(dims) == 2 and dims[1] != "head":
            figures.append(_matrices(have, name))
        elif dims:
            figures.append(_curves(have, name))
    return figures


def _numbers(measurements: Sequence[Measurement], names: Sequence[str]) -> Figure:
    plot = empty_plot("", "value")
    for index, measurement in enumerate(measurements):
        here = [name for name in names if name in measurement.values]
        error = [float(measurement.values.get(f"{name}_error", np.nan)) for name in here]
        bars(plot, here, [measurement.values[name] for name in here], measurement.subject, index, error=error)
    values = [float(m.values[names[0]]) for m in measurements if names[0] in m.values]
    return Figure(compared(values, names[0], names=[m.subject for m in measurements]), "", plot)


def _curves(measurements: Sequence[Measurement], name: str) -> Figure:
    axis = measurements[0].dims[name][0]
    plot = empty_plot(axis, name)
    stroke = line if axis in ORDERED else bars
    for index, measurement in enumerate(measurements):
        stroke(plot, labels(measurement, name), by_layer(measurement, name), measurement.subject, index)
    means = [float(np.nanmean(by_layer(measurement, name))) for measurement in measurements]
    return Figure(compared(means, f"{name} by {axis}, mean", names=[m.subject for m in measurements]), "", plot)


def _matrices(measurements: Sequence[Measurement], name: str) -> Figure:
    rows, columns = measurements[0].dims[name]
    plot = side_by_side([measurement.subject for measurement in measurements], columns, rows)
    for panel, measurement in enumerate(measurements):
        z = measurement.values[name]
        heat_map(plot, z, labels(measurement, name, 1), labels(measurement, name), panel=panel)
    means = [float(np.nanmean(measurement.values[name])) for measurement in measurements]
    what = f"{name} by {rows} and {columns}, mean"
    return Figure(compared(means, what, names=[m.subject for m in measurements]), "", plot)


def _drawable(value: np.ndarray) -> bool:
    array = np.asarray(value)
    return bool(np.issubdtype(array.dtype, np.number) and array.size and np.isfinite(array.astype(float)).any())


def _is_error(name: str) -> bool:
    return name.endswith(("_error", "_interval")) or name == "standard_error"
