"""The single number that summarises a value of a measurement in titles, tables and the summary."""

from __future__ import annotations

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import NORMAL
from vitlab.reporting.differences import Reading
from vitlab.reporting.words import value_in_words

#: Values that are summarised by the mean over the deep half of the layers, by kind: the papers report effects there.
DEEP_HALF = {
    "attention_distance": ("distance", "attended"),
    "attention_diversity": ("head_similarity", "row_similarity", "self_mass", "neighbourhood_mass"),
    "attention_entropy": ("mean", "class_row", "normalised"),
    "attention_stability": ("mean",),
    "softmax_gradient": ("mean",),
    "token_overfocus": ("top", "top1", "gini", "top1_of_mean", "gini_of_mean"),
}


def reading(name: str, scale: float = 1.0, offset: float = 0.0, *, deep: bool = False) -> Reading:
    """The number that summarises a value, times a scale, plus an offset, and its standard error.

    Args:
        name: the name of the value; `name[label]` for its element at this label of its only axis.
        scale: such as 100 for percent, or −100 for an error from an accuracy.
        offset: added after scaling.
        deep: use the deep half of the layers, also for kinds that are not in `DEEP_HALF`.

    >>> m = Measurement("k", "a", {"x": np.array([1.0, 3.0]), "e": np.array([0.5, 0.5])}, {"x": ("i",), "e": ("i",)},
    ...     errors={"x": "e"})
    >>> reading("x", 10)(m)
    (20.0, 5.0)
    """
    whole, _, label = name.removesuffix("]").partition("[")

    def read_element(measurement: Measurement) -> tuple[float, float]:
        labels = measurement.axes.get(measurement.dims.get(whole, ("",))[0], ())
        if label not in labels:
            return float("nan"), float("nan")
        value, error = (measurement.values.get(each) for each in (whole, measurement.errors.get(whole, "")))
        place = labels.index(label)
        own = float("nan") if error is None else float(error[place])
        return offset + scale * float(np.asarray(value)[place]), abs(scale) * own

    def read(measurement: Measurement) -> tuple[float, float]:
        if name not in measurement.values:
            return float("nan"), float("nan")
        value = reduced(measurement, name, measurement.values[name], deep=deep)
        return offset + scale * value, abs(scale) * _own_error(measurement, name, deep)

    return read_element if label else read


def reduced(measurement: Measurement, name: str, array: np.ndarray, *, deep: bool = False) -> float:
    """One number for an array with the axes of a value: the last epoch, else the mean over the finite elements.

    The mean is over the deep half of the layers for `DEEP_HALF`, and over pairs of a shallow and a deep layer for CKA.
    `top` is taken at its first share, and the amplitude of the highest frequency after the last block.
    """
    dims = measurement.dims.get(name, ())
    array = np.asarray(array, dtype=float)
    if dims[:1] == ("epoch",):
        known = array[np.isfinite(array)]  # not every epoch has a test
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


def in_words(measurement: Measurement, name: str) -> str:
    """A value in words, with the share of tokens that `reduced` takes `top` at.

    >>> m = Measurement("token_overfocus", "a", {}, {"top": ("share", "layer")}, {"share": (0.05, 0.1)})
    >>> in_words(m, "top")
    'share of attention on the most attended 5 % of the tokens, deep half of the layers'
    """
    text, shares = value_in_words(measurement.kind, name), measurement.axes.get("share")
    if not shares or measurement.dims.get(name, ())[:1] != ("share",):
        return text
    return text.replace("most attended tokens", f"most attended {100 * float(shares[0]):.3g} % of the tokens")


def last_output(measurement: Measurement) -> int:
    """The index of the place after the last block of a residual stream."""
    places = [str(place) for place in measurement.axes["place"]]
    return max((i for i, place in enumerate(places) if place.endswith(" out")), default=len(places) - 1)


def across_halves(array: np.ndarray) -> float:
    """The mean over pairs of one layer of the first half and one of the second."""
    rows, columns = (size // 2 for size in array.shape)
    pairs = np.concatenate((array[:rows, columns:].ravel(), array[rows:, :columns].ravel()))
    return mean(pairs) if rows else mean(array)


def mean_of_rows(array: np.ndarray) -> float:
    """The mean over rows of the means of their finite elements: layers have equal weight for any number of heads."""
    return mean([mean(row) for row in array])


def mean(values: object) -> float:
    """The mean over finite elements; NaN if there are none."""
    array = np.asarray(values, dtype=float)
    finite = array[np.isfinite(array)]
    return float(finite.mean()) if finite.size else float("nan")


def _own_error(measurement: Measurement, name: str, deep: bool) -> float:
    """The standard error given by the instrument, or derived from its 95 % interval.

    Errors are averaged over axes, as for full correlation: layers are measured on the same images.
    """
    error, interval = measurement.errors.get(name), f"{name}_interval"
    if error is not None:
        return reduced(measurement, name, measurement.values[error], deep=deep)
    if interval in measurement.values:
        half = _half(measurement, name, interval) / NORMAL
        return half if np.isfinite(half) else float("nan")
    return float("nan")


def _half(measurement: Measurement, name: str, interval: str) -> float:
    """Half of a 95 % interval that is given as (low, high), or as half widths with the axes of the value."""
    array = np.asarray(measurement.values[interval], dtype=float)
    if array.ndim == np.ndim(measurement.values[name]):
        return float(array.mean())
    return float(np.mean(array[..., 1] - array[..., 0])) / 2
