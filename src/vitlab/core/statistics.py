"""Confidence intervals, tests and confusion matrices, in numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

import numpy as np

from vitlab.core.errors import VitlabError


def standard_error(values: np.ndarray) -> np.ndarray:
    """Returns the standard error of the mean over the first axis; NaN for a single row.

    >>> float(standard_error(np.array([1.0, 3.0])))
    1.0
    """
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    error: np.ndarray = np.asarray(values.std(0, ddof=1) / np.sqrt(len(values)))
    return error


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Mean of repeated runs with Student's interval: (mean, low, high); the interval of one run is infinite.

    >>> mean, low, high = mean_interval([1.0, 2.0, 3.0])
    >>> round(mean, 3), round(low, 3), round(high, 3)
    (2.0, -0.484, 4.484)
    """
    x = np.asarray(values, dtype=float)
    if not len(x):
        raise VitlabError("the mean of an empty sequence of runs is undefined; give at least one value")
    mean = float(x.mean())
    if len(x) < 2:
        return mean, -math.inf, math.inf
    half = student_quantile(0.5 + confidence / 2, len(x) - 1) * float(x.std(ddof=1)) / math.sqrt(len(x))
    return mean, mean - half, mean + half


def paired_interval(
    first: Sequence[float], second: Sequence[float], confidence: float = 0.95
) -> tuple[float, float, float]:
    """Mean difference second − first of runs with the same seeds, with Student's interval.

    >>> paired_interval([1.0, 5.0], [2.0, 6.0])
    (1.0, 1.0, 1.0)
    """
    if len(first) != len(second):
        raise VitlabError(f"{len(first)} and {len(second)} runs cannot be paired; give one of each per seed")
    return mean_interval(np.asarray(second, dtype=float) - np.asarray(first, dtype=float), confidence)


def pseudo_values(whole: float, without: Sequence[float]) -> np.ndarray:
    """Jackknife pseudo-values R θ − (R − 1) θ₍₋ᵢ₎ of R parts; for a mean over equal parts, the values of the parts.

    Their standard error is that of θ (Tukey 1958). Pseudo-values of two models on the same parts are paired.

    Args:
        whole: θ, from all parts.
        without: θ₍₋ᵢ₎, from all parts but the i-th.

    >>> pseudo_values(2.0, [2.5, 2.0, 1.5]).tolist()  # the mean of 1, 2 and 3
    [1.0, 2.0, 3.0]
    """
    count = len(without)
    return count * whole - (count - 1) * np.asarray(without, dtype=float)


#: The largest sum of differences, in steps of their lattice, for which the exact test is computed.
_LARGEST_SUM = 50_000


def sign_flip_p(gaps: Sequence[float]) -> float:
    """Exact two-sided p value that paired differences are symmetric around 0; NaN if they are not multiples of a step.

    P(|Σ ±gᵢ| ≥ |Σ gᵢ|) over all signs (Fisher 1935). If differences are −1, 0 or 1, as those of two classifiers that
    are correct or not, this is the exact test of McNemar (1947): the binomial test of the images on which they differ.

    >>> sign_flip_p([1, 1, 1, 1, 0, 0])  # 2 · ½⁴
    0.125
    """
    sizes = np.abs(np.asarray(gaps, dtype=float))
    step = lattice_step(sizes)
    if not step:
        return math.nan if sizes.any() else 1.0
    steps = np.rint(sizes[sizes > step / 2] / step).astype(int)
    total = int(steps.sum())
    chance = np.zeros(total + 1)  # of the sum of the differences with a positive sign
    chance[0] = 1.0
    for each in steps.tolist():
        moved = np.zeros_like(chance)
        moved[each:] = chance[: total + 1 - each]
        chance = (chance + moved) / 2
    observed = round(abs(float(np.sum(gaps))) / step)
    return min(1.0, float(chance[np.abs(2 * np.arange(total + 1) - total) >= observed].sum()))


def lattice_step(values: np.ndarray) -> float:
    """The largest number of which all values are multiples, but for rounding; 0 if there is none or all are 0.

    >>> lattice_step(np.array([0.5, 0.0, -0.75])), lattice_step(np.array([1.0, 2**0.5]))
    (0.25, 0.0)
    """
    sizes = np.unique(np.abs(np.asarray(values, dtype=float)).round(12))
    largest = float(sizes.max(initial=0.0))
    tolerance, step = 1e-7 * largest, 0.0
    for size in sizes[sizes > tolerance].tolist():
        while size > tolerance:  # Euclid's algorithm
            step, size = size, step % size
            size = 0.0 if step - size < tolerance else size
        if step < largest * len(values) / _LARGEST_SUM:
            return 0.0
    return step


def paired_half_width(first: Sequence[float], second: Sequence[float], *, parts: bool = False) -> float:
    """Half the 95 % interval of the mean of second − first, which were measured on the same images; NaN if unknown.

    It is Student's. Outcomes such as correct or not take few values, and Student's interval is too narrow if they
    differ on few images: 4 images gained and none lost of 32 are not significant (exact test of McNemar, p = 0.125).
    If Student's interval excludes 0 and `sign_flip_p` is above 0.05, the half width is the difference times
    1.96 / z(p), the test-based interval of Miettinen (1976), which contains 0. If such outcomes differ on no image, the
    half width is their range times 1 − 0.025^(1/n), the exact bound of a share of which n images show none.

    Args:
        first, second: one number per image, or per part of the images.
        parts: whether they are numbers of parts, which are means and not single outcomes: the interval is Student's.

    >>> right = [0] * 28 + [1] * 4
    >>> round(paired_half_width([0] * 32, right), 3), round(paired_half_width(right, right), 3)  # 4 / 32 = 0.125
    (0.16, 0.109)
    """
    one, two = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    gaps, count = two - one, len(one)
    if count < FEWEST:
        return math.nan
    both = np.concatenate((one, two))
    spread = float(gaps.std(ddof=1)) / math.sqrt(count)
    if not spread > _ROUNDING * float(np.abs(both).max()):
        return float(np.ptp(both)) * none_bound(count) if not parts and lattice_step(both - both[0]) else math.nan
    half, size = student_quantile(0.975, count - 1) * spread, abs(float(gaps.mean()))
    if not parts and size > half and (p := sign_flip_p(gaps.tolist())) > 0.05:
        return size * 1.96 / NormalDist().inv_cdf(1 - p / 2)
    return half


def none_bound(count: int) -> float:
    """The upper end of the exact 95 % interval (Clopper and Pearson 1934) of a share that none of `count` trials shows.

    >>> round(none_bound(32), 3)
    0.109
    """
    return float(1 - 0.025 ** (1 / count))


#: The fewest repeats, parts or images that give an interval: that of two is 6 times as wide as the normal one.
FEWEST = 3

#: A spread below this, relative to the value, is rounding error.
_ROUNDING = 1e-9


def proportion_interval(correct: int, count: int, confidence: float = 0.95) -> tuple[float, float, float]:
    """The proportion of `count` trials with Wilson's interval, which lies inside [0, 1].

    >>> [round(v, 3) for v in proportion_interval(0, 10)]
    [0.0, 0.0, 0.278]
    """
    if not 0 <= correct <= count or not count:
        raise VitlabError(f"invalid proportion {correct} of {count}; expected 0 <= correct <= count and count >= 1")
    p, z = correct / count, student_quantile(0.5 + confidence / 2, 10**6)
    centre = (p + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    return p, max(0.0, centre - half), min(1.0, centre + half)


def share_error(share: float, count: float) -> float:
    """The standard error of a proportion of `count` trials, from Wilson's 95 % interval; never 0.

    >>> round(share_error(0.5, 100), 3), share_error(1.0, 100) > 0
    (0.049, True)
    """
    if not (count >= 1 and 0 <= share <= 1):
        return math.nan
    _, low, high = proportion_interval(round(share * count), round(count))
    return (high - low) / 2 / 1.96


@cache
def student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t above the median, by bisection of its integrated density (scipy is not a dependency).

    >>> round(student_quantile(0.975, 4), 4)
    2.7764
    """
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)

    def upper(t: float) -> float:
        # The substitution x = tan(a) makes the range finite and the integrand smooth.
        angles = np.linspace(0.0, math.atan(t), 4001)
        density = np.exp(log_scale - (freedom + 1) / 2 * np.log1p(np.tan(angles) ** 2 / freedom)) / np.cos(angles) ** 2
        step = angles[1] - angles[0]
        return float(step / 3 * (density[0] + density[-1] + 4 * density[1:-1:2].sum() + 2 * density[2:-1:2].sum()))

    low, high = 0.0, 1.0
    while upper(high) < probability - 0.5 and high < 1e6:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if upper(middle) < probability - 0.5 else (low, middle)
    return (low + high) / 2


def student_p(values: Sequence[float]) -> float:
    """Two-sided p value of Student's test that the mean of repeated runs is 0; NaN for fewer than two runs.

    With x = √ν tan(a), the density of t becomes proportional to cos(a)^(ν − 1), which is integrated from atan(t/√ν).

    >>> round(student_p([1.0, 2.0, 3.0]), 4)
    0.0742
    """
    x = np.asarray(values, dtype=float)
    if len(x) < 2:
        return math.nan
    mean, deviation, freedom = float(x.mean()), float(x.std(ddof=1)), len(x) - 1
    if deviation == 0:
        return 0.0 if mean else 1.0
    angles = np.linspace(math.atan(abs(mean) / deviation * math.sqrt(len(x) / freedom)), math.pi / 2, 4001)
    density = np.cos(angles) ** (freedom - 1)
    simpson = density[0] + density[-1] + 4 * density[1:-1:2].sum() + 2 * density[2:-1:2].sum()
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    return min(1.0, float(2 * scale * (angles[1] - angles[0]) / 3 * simpson))


def holm(p_values: Sequence[float]) -> list[float]:
    """p values adjusted for the number of tests (Holm 1979), in the given order.

    With p₍₁₎ ≤ … ≤ p₍ₘ₎, the adjusted p₍ᵢ₎ is max over j ≤ i of min(1, (m − j + 1) p₍ⱼ₎).

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    if any(not 0 <= p <= 1 for p in p_values):
        raise VitlabError(f"invalid p values {list(p_values)}; expected 0 to 1; omit tests without a result")
    adjusted, largest, count = [0.0] * len(p_values), 0.0, len(p_values)
    for rank, index in enumerate(sorted(range(count), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
