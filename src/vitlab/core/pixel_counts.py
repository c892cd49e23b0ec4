"""Scores of label maps from pixel counts of each class, for the rules of `Measurement.pooling`.

Counts of images can be added, and IoU is then that of all images; a mean of IoU over parts of the images is not.

Shape legend: c conditions, r runs, K classes; the last axis of counts holds the pixels of a class that are correct,
labelled and predicted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vitlab.core.statistics import mean_interval

Array = np.ndarray

#: The last axis of counts.
COUNTS = ("correct", "labelled", "predicted")


def count_pixels(confusion: Array) -> Array:
    """The counts of a confusion matrix whose rows are labels, (…, K, K) -> (…, K, 3).

    >>> count_pixels(np.array([[1, 1], [0, 2]])).tolist()
    [[1, 2, 1], [2, 2, 3]]
    """
    correct = np.diagonal(confusion, axis1=-2, axis2=-1)
    return np.stack([correct, confusion.sum(-1), confusion.sum(-2)], -1)


def class_iou(counts: Array) -> Array:
    """TP / (TP + FP + FN), (…, K, 3) -> (…, K); NaN for classes that are neither labelled nor predicted.

    >>> class_iou(np.array([[1, 2, 1], [2, 2, 3], [0, 0, 0]])).round(3).tolist()
    [0.5, 0.667, nan]
    """
    correct, labelled, predicted = np.moveaxis(counts, -1, 0)
    return _share(correct, labelled + predicted - correct)


def mean_iou(counts: Array) -> Array:
    """mIoU, the mean over the classes that occur as label or prediction: (…, K, 3) -> (…)."""
    return _mean(class_iou(counts), -1)


def pixel_accuracy(counts: Array) -> Array:
    """The share of correct pixels, (…, K, 3) -> (…)."""
    return np.asarray(counts[..., 0].sum(-1) / counts[..., 1].sum(-1))


def mean_class_accuracy(counts: Array) -> Array:
    """The mean over the labelled classes of TP / (TP + FN), (…, K, 3) -> (…)."""
    return _mean(_share(counts[..., 0], counts[..., 1]), -1)


def class_iou_over_runs(counts: Array) -> Array:
    """The mean over runs, (c, r, K, 3) -> (c, K); NaN for classes that occur in no run."""
    return _mean(class_iou(counts), 1)


def pixel_accuracy_over_runs(counts: Array) -> Array:
    """The mean over runs, (c, r, K, 3) -> (c,)."""
    return _mean(pixel_accuracy(counts), 1)


def mean_class_accuracy_over_runs(counts: Array) -> Array:
    """The mean over runs, (c, r, K, 3) -> (c,)."""
    return _mean(mean_class_accuracy(counts), 1)


def mean_iou_of_all(counts: Array) -> Array:
    """mIoU of all conditions together, (c, r, K, 3) -> ()."""
    return mean_iou(counts.sum((0, 1)))


def over_runs(numbers: Array) -> Array:
    """The mean over runs, (c, r) -> (c,)."""
    return _mean(numbers, 1)


def average(numbers: Array) -> Array:
    """The mean of all numbers, (…) -> ()."""
    return np.asarray(numbers.mean())


def difference(one: Array, other: Array) -> Array:
    """One minus the other."""
    return np.asarray(one - other)


def mean_by(numbers: Array, place: Array) -> Array:
    """The mean of the rows with the same place 0, 1, …: (n, …), (n,) -> (places, …).

    >>> mean_by(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1])).tolist()
    [2.0, 5.0]
    """
    return np.stack([numbers[place == each].mean(0) for each in range(int(place.max()) + 1)])


def run_interval(of_run: Array, random: Array) -> Array:
    """Half the 95 % interval over runs, (c, r), (c,) -> (c,): 0 for deterministic conditions, infinite for one run."""
    return np.array([_half(row) if varies else 0.0 for row, varies in zip(of_run, random, strict=True)])


def mean_run_interval(of_run: Array, place: Array, random: Array) -> Array:
    """Half the 95 % interval over runs of the mean over corruptions: (c, r), (c,), (c,) -> ()."""
    return np.asarray(_half(mean_by(of_run, place).mean(0)) if random.any() else 0.0)


def _half(runs: Array) -> float:
    mean, _, high = mean_interval(runs.tolist())
    return high - mean


def _share(part: Array, whole: Array) -> Array:
    share = np.full(whole.shape, np.nan)
    np.divide(part, whole, out=share, where=whole > 0)
    return share


def _mean(numbers: Array, axis: int) -> Array:
    """The mean of the numbers that are not NaN; NaN where there are none."""
    masked: np.ma.MaskedArray = np.ma.masked_invalid(numbers)
    return np.asarray(np.ma.filled(masked.mean(axis), np.nan))


FORMULAS: dict[str, Callable[..., Array]] = {
    function.__name__: function
    for function in (
        class_iou,
        mean_iou,
        pixel_accuracy,
        mean_class_accuracy,
        class_iou_over_runs,
        pixel_accuracy_over_runs,
        mean_class_accuracy_over_runs,
        mean_iou_of_all,
        over_runs,
        average,
        difference,
        mean_by,
        run_interval,
        mean_run_interval,
    )
}
