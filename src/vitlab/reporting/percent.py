"""Shares of images in percent with their standard errors, for the figures of stress tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.differences import Reading
from vitlab.reporting.readings import mean


def percent(measurement: Measurement, name: str) -> np.ndarray:
    """A share in percent; NaN if the measurement does not have it."""
    return 100 * np.asarray(measurement.values.get(name, np.nan), dtype=float)


def percent_error(measurement: Measurement, name: str) -> np.ndarray:
    """The standard error of a share in percent; NaN where unknown."""
    missing = np.full(np.shape(measurement.values.get(name, np.nan)), np.nan)
    return 100 * np.asarray(measurement.values.get(measurement.errors.get(name, ""), missing), dtype=float)


def in_percent(measurement: Measurement, *names: str) -> Measurement:
    """The measurement with the given shares and their errors in percent, for figures.

    >>> m = Measurement("k", "a", {"v": np.array([0.5])}, {"v": ("x",)})
    >>> in_percent(m, "v").values["v"].tolist()
    [50.0]
    """
    scaled = {each for name in names for each in (name, measurement.errors.get(name, "")) if each in measurement.values}
    values = {name: 100 * np.asarray(measurement.values[name], dtype=float) for name in scaled}
    return replace(measurement, values={**measurement.values, **values})


def at(name: str, place: Callable[[Measurement], Any]) -> Reading:
    """The reading of one element of a share, or of the mean over several elements, in percent.

    Args:
        name: the name of the share.
        place: returns the index into the array of a measurement.
    """

    def read(measurement: Measurement) -> tuple[float, float]:
        parts = (part(measurement, name)[place(measurement)] for part in (percent, percent_error))
        value, error = (mean(part) for part in parts)
        return value, error

    return read


def aligned(measurement: Measurement, values: np.ndarray, axes: Mapping[str, Sequence[Any]]) -> np.ndarray:
    """Values of a measurement on longer axes: NaN at labels that the measurement does not have.

    >>> m = Measurement("k", "a", {"v": np.array([1.0])}, {"v": ("x",)}, {"x": ("fog",)})
    >>> aligned(m, m.values["v"], {"x": ("snow", "fog")}).tolist()
    [nan, 1.0]
    """
    wide = np.full([len(labels) for labels in axes.values()], np.nan)
    indices = [[list(labels).index(label) for label in measurement.axes[name]] for name, labels in axes.items()]
    wide[np.ix_(*indices)] = values
    return wide


def union(measurements: Sequence[Measurement], axis: str) -> list[Any]:
    """All labels along an axis over the measurements, in order of first occurrence."""
    return list(dict.fromkeys(label for measurement in measurements for label in measurement.axes[axis]))


def from_clean(
    measurement: Measurement, x: Sequence[float], accuracy: np.ndarray, error: np.ndarray, at: float = 0.0
) -> tuple[list[float], np.ndarray, np.ndarray]:
    """A curve sorted by strength that includes the accuracy on clean images.

    Args:
        measurement: has the value `clean_accuracy`.
        x: the strengths of a perturbation.
        accuracy, error: at each strength, in percent.
        at: the strength at which images are unchanged.

    >>> m = Measurement("k", "a", {"clean_accuracy": np.array(0.5)}, {"clean_accuracy": ()})
    >>> from_clean(m, [2, 1], np.array([10.0, 20.0]), np.zeros(2))[:2]
    ([0.0, 1.0, 2.0], array([50., 20., 10.]))
    """
    places = np.asarray(x, dtype=float)
    if at not in places:
        places = np.append(places, at)
        accuracy = np.append(accuracy, percent(measurement, "clean_accuracy"))
        error = np.append(error, percent_error(measurement, "clean_accuracy"))
    order = np.argsort(places)
    return places[order].tolist(), accuracy[order], error[order]
