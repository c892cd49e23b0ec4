"""The default drawing of kinds without a module in `figures/`, chosen by the names of the axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import auxiliary
from vitlab.reporting.drawing import Figure, bars, by_layer, empty_plot, heat_map, labels, line
from vitlab.reporting.headline import Headline
from vitlab.reporting.panels import side_by_side
from vitlab.reporting.readings import mean
from vitlab.reporting.words import value_in_words

#: Axes along which a value is drawn as a line; others get bars.
ORDERED = {"layer", "depth", "epoch", "step", "severity", "frequency", "epsilon", "ratio", "bin", "rank", "snapshot"}

#: Matrices with longer sides are averaged over blocks, which keeps the page small.
LONGEST_SIDE = 64


def draw_by_axes(measurements: Sequence[Measurement]) -> list[Figure]:
    """One figure per value: bars for scalars, lines along ordered axes, heat maps for matrices."""
    first = measurements[0]
    numbers = [name for name, value in first.values.items() if _drawable(value) and name not in auxiliary(first)]
    single = [name for name in numbers if not np.ndim(first.values[name])]
    figures = [_numbers(measurements, single)] if single else []
    for name in numbers:
        dims = first.dims.get(name, ())
        have = [each for each in measurements if name in each.values and each.dims.get(name, ()) == dims]
        if len(dims) == 2 and dims[1] != "head":
            figures.append(_matrices(have, name))
        elif dims:
            figures.append(_curves(have, name))
    return figures


def _numbers(measurements: Sequence[Measurement], names: Sequence[str]) -> Figure:
    plot = empty_plot("", "value")
    for index, measurement in enumerate(measurements):
        here = [name for name in names if name in measurement.values and not np.ndim(measurement.values[name])]
        errors = [_error(measurement, name) for name in here]
        error = [np.nan if each is None else float(each) for each in errors]
        known = error if np.isfinite(error).any() else None
        bars(
            plot,
            [_words(measurement, name) for name in here],
            [measurement.values[name] for name in here],
            measurement.subject,
            index,
            error=known,
        )
    return Figure(_headline([each for each in measurements if names[0] in each.values], names[0]), "", plot)


def _curves(measurements: Sequence[Measurement], name: str) -> Figure:
    axis = measurements[0].dims[name][0]
    plot = empty_plot(_plain(axis), _words(measurements[0], name))
    add = line if axis in ORDERED else bars
    for index, measurement in enumerate(measurements):
        error = _error(measurement, name) if np.ndim(measurement.values[name]) == 1 else None
        x, y = labels(measurement, name), by_layer(measurement, name)
        add(plot, x, y, measurement.subject, index, error=error)
    return Figure(_headline(measurements, name, axis), "", plot)


def _matrices(measurements: Sequence[Measurement], name: str) -> Figure:
    rows, columns = measurements[0].dims[name]
    plot = side_by_side([measurement.subject for measurement in measurements], _plain(columns), _plain(rows))
    for panel, measurement in enumerate(measurements):
        down, across = (_groups(side) for side in np.shape(measurement.values[name]))
        z = _averaged(measurement.values[name], down, across)
        x, y = labels(measurement, name, 1), labels(measurement, name)
        heat_map(plot, z, [x[group[0]] for group in across], [y[group[0]] for group in down], panel=panel)
    return Figure(_headline(measurements, name, rows, columns), "", plot)


def _headline(measurements: Sequence[Measurement], name: str, *axes: str) -> Headline:
    """The mean of each model in the sentence; the table has the numbers with their noise."""
    words = _words(measurements[0], name)
    along = f"{words} by {' and '.join(map(_plain, axes))}" if axes else words
    what = f"{along}, mean" if axes else along
    means = [mean(measurement.values[name]) for measurement in measurements]
    return Headline(_compared(what, means, [measurement.subject for measurement in measurements]), along)


def _compared(what: str, values: Sequence[float], names: Sequence[str]) -> str:
    """The number of the first model, and the differences of the others from it.

    >>> _compared("Entropy", [3.7, 3.85], ["plain", "CB"])
    'Entropy: 3.7 for plain; CB +0.15'
    """
    base = f"{what}: {values[0]:.3g}"
    others = [f"{name} {value - values[0]:+.3g}" for name, value in zip(names[1:], values[1:], strict=True)]
    return f"{base} for {names[0]}; {', '.join(others)}" if others else base


def _words(measurement: Measurement, name: str) -> str:
    return value_in_words(measurement.kind, name)


def _plain(axis: str) -> str:
    return axis.replace("_", " ")


def _error(measurement: Measurement, name: str) -> Any:
    """The standard error of a value; None if there is none."""
    return measurement.values.get(measurement.errors.get(name, ""))


def _groups(side: int) -> list[np.ndarray]:
    """The indices along a side in at most `LONGEST_SIDE` groups of neighbours."""
    return np.array_split(np.arange(side), min(side, LONGEST_SIDE))


def _averaged(matrix: np.ndarray, down: Sequence[np.ndarray], across: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of each block of a matrix; NaN for a block without finite elements."""
    z = np.asarray(matrix, dtype=float)
    return np.array([[mean(z[np.ix_(rows, columns)]) for columns in across] for rows in down])


def _drawable(value: np.ndarray) -> bool:
    array = np.asarray(value)
    return bool(np.issubdtype(array.dtype, np.number) and array.size and np.isfinite(array.astype(float)).any())
