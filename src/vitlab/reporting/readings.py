"""Which single number stands for a value of a measurement, in titles, tables and the summary alike."""

from __future__ import annotations

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import NORMAL
from vitlab.reporting.judging import Reading

#: Values that stand for the mean over the deep half of the layers, by kind: there the papers' effects are.
DEEP_HALF = {
    "attention_distance": ("distance", "attended"),
    "attention_diversity": ("head_similarity", "row_similarity", "self_mass", "neighbourhood_mass"),
    "attention_entropy": ("mean", "class_row", "normalised"),
    "attention_stability": ("mean",),
    "softmax_gradient": ("mean",),
    "token_overfocus": ("top", "top1", "gini", "top1_of_mean", "gini_of_mean"),
}


def reading(name: str, scale: float = 1.0, offset: float = 0.0, *, deep: bool = False) -> Reading:
    """The number that stands for a value, times a scale, plus an offset, and its standard error.

    Args:
        name: of the value.
        scale: 100 for percent; negative where more of the value is less of the number.
        offset: added after scaling.
        deep: take the deep half of the layers, also for kinds that `DEEP_HALF` does not name.

    >>> m = Measurement("k", "a", {"x": np.array([1.0, 3.0]), "e": np.array([0.5, 0.5])}, {"x": ("i",), "e": ("i",)},
    ...     errors={"x": "e"})
    >>> reading("x", 10)(m)
    (20.0, 5.0)
    """

    def read(measurement: Measurement) -> tuple[float, float]:
        if name not in measurement.values:
            return float("nan"), float("nan")
        value = reduced(measurement, name, measurement.values[name], deep=deep)
        return offset + scale * value, abs(scale) * _own_error(measurement, name, deep)

    return read


def reduced(measurement: Measurement, name: str, array: np.ndarray, *, deep: bool = False) -> float:
    """One number for an array with the axes of a value: over epochs the last, else a mean of what is finite.

    That is over the deep half of the layers for `DEEP_HALF`, and over pairs of a shallow and a deep layer for CKA. The
    first share of `top` counts, and of the highest frequency's amplitude what the last block leaves.
    """
    dims = measurement.dims.get(name, ())
    array = np.asarray(array, dtype=float)
    if dims[:1] == ("epoch",):
        known = array[np.isfinite(array)]  # not every epoch need be tested
        return float(known[-1]) if len(known) else float("nan")
    if dims[:2] == ("share", "layer"):
        array, dims = array[0], dims[1:]
    if (deep or name in DEEP_HALF.get(measurement.kind, ())) and dims[:1] == ("layer",):
        return mean_of_rows(array[len(array) // 2 :])
    if dims == ("layer", "other_layer"):
        return across_halves(array)
    if (measurement.kind, name) == ("feature_fourier", "high") and dims == ("place",):
        return float(array[last_output(measurement)])
    return mean(array)


def last_output(measurement: Measurement) -> int:
    """The place after the last block of a residual stream."""
    places = [str(place) for place in measurement.axes["place"]]
    return max((i for i, place in enumerate(places) if place.endswith(" out")), default=len(places) - 1)


def across_halves(array: np.ndarray) -> float:
    """The mean over pairs of one layer of the first half and one of the second."""
    rows, columns = (size // 2 for size in array.shape)
    pairs = np.concatenate((array[:rows, columns:].ravel(), array[rows:, :columns].ravel()))
    return mean(pairs) if rows else mean(array)


def mean_of_rows(array: np.ndarray) -> float:
    """The mean over rows of their means over what is finite: layers count alike, however many heads they have."""
    return mean([mean(row) for row in array])


def mean(values: object) -> float:
    """The mean of what is finite; NaN where nothing is."""
    array = np.asarray(values, dtype=float)
    finite = array[np.isfinite(array)]
    return float(finite.mean()) if finite.size else float("nan")


def _own_error(measurement: Measurement, name: str, deep: bool) -> float:
    """The standard error that the instrument gives, or what its 95 % interval says of it.

    Over axes errors are averaged, as if they always went the same way: layers are measured on the same images.
    """
    error, interval = measurement.errors.get(name), f"{name}_interval"
    if error is not None:
        return reduced(measurement, name, measurement.values[error], deep=deep)
    if interval in measurement.values:
        half = _half(measurement, name, interval) / NORMAL
        return half if np.isfinite(half) else float("nan")
    return float("nan")


def _half(measurement: Measurement, name: str, interval: str) -> float:
    """Half of a 95 % interval, whether it is given as (low, high) or, with the value's own axes, as its half."""
    array = np.asarray(measurement.values[interval], dtype=float)
    if array.ndim == np.ndim(measurement.values[name]):
        return float(array.mean())
    return float(np.mean(array[..., 1] - array[..., 0])) / 2
