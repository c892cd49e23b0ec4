"""Statistics computed from stored sums or from one number per image, for the rules of `Measurement.pooling`.

They are computed from the combined arrays of all parts. A mean over parts would be wrong for statistics that are not
linear (ECE, CKA, quantiles).

Shape legend: n images, M bins, c corruptions, s severities, L and K layers, H heads, b mini-batches, k eigenvalues,
g groups, a answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from vitlab.core import pixel_counts
from vitlab.core.statistics import mean_interval, proportion_interval

Array = np.ndarray

# -- one number per image, (…, n): the value is the mean over images, with the standard error of a mean ----------------


def each(numbers: Array) -> Array:
    """Returns the numbers unchanged, (…, n)."""
    return np.asarray(numbers, dtype=np.float64)


def drop(clean: Array, numbers: Array) -> Array:
    """Clean minus perturbed, (n,) and (…, n) -> (…, n); the error of its mean is the paired standard error."""
    return np.asarray(each(clean) - each(numbers))


def wrong(correct: Array) -> Array:
    """1 where an image is classified wrongly, (…, n)."""
    return 1 - each(correct)


def over_conditions(numbers: Array) -> Array:
    """The mean over all conditions, (…, n) -> (n,)."""
    return np.asarray(each(numbers).reshape(-1, np.shape(numbers)[-1]).mean(0))


def corruption_error(correct: Array, baseline: Array) -> Array:
    """CE_c = Σ_s E_{s,c} / Σ_s E^AlexNet_{s,c} (Hendrycks and Dietterich, section 4.2): (c, s, n), (c,) -> (c, n).

    >>> corruption_error(np.full((1, 5, 2), 0.6), np.array([0.8])).round(6).tolist()
    [[0.5, 0.5]]
    """
    return np.asarray((1 - each(correct)).mean(1) / baseline[:, None])


def relative_corruption_error(correct: Array, clean: Array, baseline: Array) -> Array:
    """Relative CE, with the errors on clean images subtracted: (c, s, n), (n,), (c,) -> (c, n)."""
    return np.asarray((each(clean) - each(correct)).mean(1) / baseline[:, None])


def mean_corruption_error(correct: Array, baseline: Array, weights: Array) -> Array:
    """mCE, Σ_c w_c CE_c: (c, s, n), (c,), (c,) -> (n,)."""
    return _weighted(corruption_error(correct, baseline), weights)


def relative_mean_corruption_error(correct: Array, clean: Array, baseline: Array, weights: Array) -> Array:
    """Relative mCE: (c, s, n), (n,), (c,), (c,) -> (n,)."""
    return _weighted(relative_corruption_error(correct, clean, baseline), weights)


def _weighted(rows: Array, weights: Array) -> Array:
    used = weights != 0  # rows with weight 0 are omitted, because they may be NaN; a weight of NaN is used
    total: Array = (weights[used, None] * rows[used]).sum(0)
    return total


BY_IMAGE: dict[str, Callable[..., Array]] = {
    function.__name__: function
    for function in (
        each,
        drop,
        wrong,
        over_conditions,
        corruption_error,
        relative_corruption_error,
        mean_corruption_error,
        relative_mean_corruption_error,
    )
}


def mean_of(name: str, *given: Array) -> Array:
    """The mean over images of a function of `BY_IMAGE`."""
    return np.asarray(BY_IMAGE[name](*given).mean(-1))


def error_of(name: str, *given: Array) -> Array:
    """The standard error of `mean_of`, s / √n with n − 1 in s²; NaN for one image.

    >>> round(float(error_of("each", np.array([0.0, 0.0, 1.0, 1.0]))), 4)  # √(¼ / 3)
    0.2887
    """
    numbers = BY_IMAGE[name](*given)
    count = numbers.shape[-1]
    return np.asarray(numbers.std(-1, ddof=1) / math.sqrt(count)) if count > 1 else np.full(numbers.shape[:-1], np.nan)


# -- other statistics -------------------------------------------------------------------------------------------------


def bin_count(confidence: Array, edges: Array) -> Array:
    """The number of predictions in each bin ((m−1)/M, m/M]: (n,), (M + 1,) -> (M,)."""
    return np.bincount(_bins(confidence, edges), minlength=len(edges) - 1)


def bin_mean(numbers: Array, confidence: Array, edges: Array) -> Array:
    """The mean of numbers over the predictions of each bin, NaN for empty bins: (n,), (n,), (M + 1,) -> (M,)."""
    sums = np.bincount(_bins(confidence, edges), weights=each(numbers), minlength=len(edges) - 1)
    count = bin_count(confidence, edges)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def expected_calibration_error(count: Array, accuracy: Array, confidence: Array) -> Array:
    """ECE = Σ_m (n_m / n) |accuracy_m − confidence_m|, all (M,)."""
    return np.asarray(np.nansum(count * np.abs(accuracy - confidence)) / count.sum())


def signed_calibration_error(count: Array, accuracy: Array, confidence: Array) -> Array:
    """Σ_m (n_m / n) (confidence_m − accuracy_m), all (M,): positive for an overconfident model."""
    return np.asarray(np.nansum(count * (confidence - accuracy)) / count.sum())


def wilson_interval(correct: Array) -> Array:
    """The 95 % interval of a proportion of n images: (n,) -> (2,)."""
    return np.array(proportion_interval(round(float(np.sum(correct))), len(correct))[1:])


def student_interval(numbers: Array) -> Array:
    """The 95 % interval of a mean over n images: (n,) -> (2,)."""
    return np.array(mean_interval(each(numbers).tolist())[1:])


def cka(cross: Array, own: Array, other: Array) -> Array:
    """CKA from sums of HSIC₁ over mini-batches: (L, K), (L,), (K,) -> (L, K)."""
    return np.asarray(cross / np.sqrt(own[:, None] * other))


def negative_proportion(eigenvalues: Array) -> Array:
    """NEP, the proportion of negative eigenvalues (HDVW App. C, Fig. C.5): (b, k) -> ().

    >>> float(negative_proportion(np.array([-1.0, 2.0, 4.0, 6.0])))
    0.25
    """
    return np.asarray(np.mean(eigenvalues < 0))


def positive_average(eigenvalues: Array) -> Array:
    """APE, the mean of the positive eigenvalues (HDVW App. C, Fig. C.5), NaN if there are none: (b, k) -> ().

    >>> float(positive_average(np.array([-1.0, 2.0, 4.0, 6.0])))
    4.0
    """
    positive = eigenvalues[eigenvalues > 0]
    return np.asarray(positive.mean() if len(positive) else math.nan)


def quantile_15(histogram: Array, bound: Array) -> Array:
    """15th percentile from a histogram."""
    return histogram_quantile(histogram, bound, 0.15)


def quantile_85(histogram: Array, bound: Array) -> Array:
    """85th percentile from a histogram."""
    return histogram_quantile(histogram, bound, 0.85)


def quantile_15_of_all(histogram: Array, bound: Array) -> Array:
    """15th percentile over all heads together: (L, H, M), (L,) -> (L,)."""
    return histogram_quantile(histogram.sum(1), bound, 0.15)


def quantile_85_of_all(histogram: Array, bound: Array) -> Array:
    """85th percentile over all heads together: (L, H, M), (L,) -> (L,)."""
    return histogram_quantile(histogram.sum(1), bound, 0.85)


def share_quantiles(histogram: Array, levels: Array) -> Array:
    """Quantiles of numbers in [0, 1] from the fraction in each bin: (L, H, M), (Q,) -> (Q, L, H); NaN if a head is."""
    ones, shares = np.ones(len(histogram)), np.nan_to_num(histogram)
    return np.stack([histogram_quantile(shares, ones, float(level)) for level in levels])


def histogram_quantile(histogram: Array, bound: Array, share: float) -> Array:
    """A quantile of numbers between 0 and a bound from counts in bins of equal width, linear within a bin.

    Args:
        histogram: (L, …, M) counts.
        bound: (L,) the upper end of the last bin.
        share: the quantile level, between 0 and 1.

    Returns:
        (L, …), exact to within the width of a bin; NaN for empty histograms.

    >>> histogram_quantile(np.array([[0, 2, 2, 0]]), np.array([4.0]), 0.75).tolist()  # half of the third bin
    [2.5]
    """
    cumulative = np.cumsum(histogram, -1)
    total = cumulative[..., -1:]
    target = share * total
    index = (cumulative < target).sum(-1, keepdims=True).clip(0, histogram.shape[-1] - 1)
    inside = np.take_along_axis(histogram, index, -1)
    before = np.take_along_axis(cumulative, index, -1) - inside
    fraction = (target - before) / np.where(inside > 0, inside, 1)
    width = bound.reshape(-1, *[1] * (histogram.ndim - 1)) / histogram.shape[-1]
    return np.where(total > 0, (index + fraction) * width, np.nan)[..., 0]


def ratio(sums: Array, counts: Array) -> Array:
    """Sums over counts, NaN where there is nothing to count: (…), (…) -> (…)."""
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def correlation(moments: Array) -> Array:
    """Pearson correlation of x and y from n, Σx, Σy, Σx², Σy², Σxy: (…, 6) -> (…); NaN if x or y is constant.

    >>> x, y = np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])
    >>> float(correlation(np.array([3, x.sum(), y.sum(), x @ x, y @ y, x @ y])))
    1.0
    """
    count, x, y, x2, y2, xy = np.moveaxis(np.asarray(moments, dtype=np.float64), -1, 0)
    covariance = xy / count - x * y / count**2
    variances = (x2 / count - (x / count) ** 2) * (y2 / count - (y / count) ** 2)
    return np.where(variances > 1e-24, covariance / np.sqrt(np.maximum(variances, 1e-24)), np.nan)


def group_mean(numbers: Array, group: Array, count: Array) -> Array:
    """The mean over the images of each group, NaN for empty groups: (n,), (n,) from 0, (g,) -> (g,).

    >>> group_mean(np.array([1.0, 0.0, 0.5]), np.array([0, 0, 2]), np.array([2, 0, 1])).tolist()
    [0.5, nan, 0.5]
    """
    sums = np.bincount(group, weights=each(numbers), minlength=len(count))
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def group_error(numbers: Array, group: Array, count: Array) -> Array:
    """The standard error of `group_mean`, NaN for groups of fewer than two images: (n,), (n,), (g,) -> (g,)."""
    squares = np.bincount(
        group, weights=(each(numbers) - group_mean(numbers, group, count)[group]) ** 2, minlength=len(count)
    )
    return np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1) / np.maximum(count, 1)), np.nan)


def prior_by_group(scores: Array, count: Array) -> Array:
    """The largest mean score of one answer to all questions of a group, NaN for empty groups: (g, a), (g,) -> (g,).

    >>> prior_by_group(np.array([[1.0, 3.0], [0.0, 0.0]]), np.array([4, 0])).tolist()
    [0.75, nan]
    """
    return np.where(count > 0, scores.max(1) / np.maximum(count, 1), np.nan)


def prior_of_all(scores: Array, count: Array) -> Array:
    """The mean score of the answers of `prior_by_group` over all questions: (g, a), (g,) -> ()."""
    return np.asarray(scores.max(1).sum() / count.sum())


def _bins(confidence: Array, edges: Array) -> Array:
    index = np.searchsorted(edges, confidence, side="left") - 1
    return np.clip(index, 0, len(edges) - 2)  # a confidence may exceed 1 by rounding


FORMULAS: dict[str, Callable[..., Array]] = {
    function.__name__: function
    for function in (
        bin_count,
        bin_mean,
        expected_calibration_error,
        signed_calibration_error,
        wilson_interval,
        student_interval,
        cka,
        negative_proportion,
        positive_average,
        quantile_15,
        quantile_85,
        quantile_15_of_all,
        quantile_85_of_all,
        share_quantiles,
        ratio,
        correlation,
        group_mean,
        group_error,
        prior_by_group,
        prior_of_all,
    )
} | pixel_counts.FORMULAS
