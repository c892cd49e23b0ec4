"""One number per model, its noise, and its difference from the baseline.

A number of a measurement is defined by a `Reading`, a function that returns it with the standard error given by the
instrument. Titles, tables and the summary of a report use the same functions of this file, so that they agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import NORMAL, Combined
from vitlab.core.statistics import FEWEST, paired_half_width, pseudo_values, student_quantile
from vitlab.reporting.findings import UNKNOWN, verdict

#: Returns a number of a measurement and the standard error given by the instrument; NaN where either is unknown.
Reading = Callable[[Measurement], tuple[float, float]]

#: Axes with the conditions of a stress test, and those of one kind only.
_CONDITIONS = ("attack", "condition", "corruption", "epsilon", "mask", "perturbation", "severity")
_CONDITIONS_OF = {"frequency_noise": ("frequency",), "patch_shuffle": ("grid",)}

#: A spread below this, relative to the value, is rounding error.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Number:
    """A number with its noise.

    Args:
        value: the number.
        error: its standard error; NaN if unknown.
        freedom: degrees of freedom of the error: R − 1 for R repeats, infinite if the instrument gives the error.
    """

    value: float
    error: float = math.nan
    freedom: float = math.inf

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval."""
        return quantile(self.freedom) * self.error


@dataclass(frozen=True)
class Difference:
    """The difference between a number of one model and that of the baseline.

    Models that were measured on the same images are paired: the interval is that of `paired_half_width` over the
    differences on the same images, parts of the images, or groups of many images. It contains 0 if the exact test of
    McNemar, for outcomes such as correct or not, is not significant. Otherwise the numbers are treated as independent.

    Args:
        title: the title of the section.
        name: the name of the value.
        label: the label of the model.
        baseline, number: the numbers of the baseline and of the model.
        kind: the kind of measurement.
        paired: half the width of the paired 95 % interval; NaN if the models are not paired.
        pairs: the number of pairs.
        what: the value in words; by default those of its kind.

    >>> clear = Difference("entropy", "mean", "CB", Number(1.0, 0.3), Number(2.0, 0.4))
    >>> clear.value, round(clear.half_width, 2), clear.verdict
    (1.0, 0.98, 'larger than the noise')
    >>> Difference("entropy", "mean", "CB", Number(1.0), Number(2.0)).verdict
    'noise not known'
    """

    title: str
    name: str
    label: str
    baseline: Number
    number: Number
    kind: str = ""
    paired: float = math.nan
    pairs: int = 0
    what: str = ""

    @property
    def value(self) -> float:
        """The model's number minus the baseline's."""
        return self.number.value - self.baseline.value

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval; √(a² + b²) of the half widths of both numbers if not paired."""
        if math.isfinite(self.paired):
            return self.paired
        return math.hypot(self.number.half_width, self.baseline.half_width)

    @property
    def strength(self) -> float:
        """The difference in half widths: above 1 it is larger than the noise; NaN if the noise is unknown."""
        return math.nan if self.verdict == UNKNOWN else abs(self.value) / self.half_width

    @property
    def verdict(self) -> str:
        """The result of `findings.verdict`."""
        return verdict(self.value, self.half_width)


def number(measurement: Measurement, reading: Reading) -> Number:
    """A number of a model; its noise is that of the repeats or that of the instrument, whichever is larger.

    Noise over images is used only if the instrument gives none: both are over the same images. The noise is not known
    if there are two repeats and the instrument gives none or a smaller one: their interval would be 6.5 times as wide
    as that of many repeats with the same spread, such as 50 % ± 381 %.
    """
    combined = measurement if isinstance(measurement, Combined) else None
    value, own = reading(combined.whole if combined and combined.whole else measurement)
    own = own if own > 0 else math.nan  # identical outcomes show no noise, which does not mean that there is none
    if combined is None or not math.isfinite(value):
        return Number(value, own)
    each = units(combined, reading)
    spread = float(each.std(ddof=1) / math.sqrt(len(each))) if len(each) > 1 else math.nan
    if not spread > _ROUNDING * abs(value):
        return Number(value, own)
    if combined.over == "images" and math.isfinite(own):
        return Number(value, own)
    if NORMAL * own >= quantile(len(each) - 1) * spread:  # the same rule as the bars of figures
        return Number(value, own)
    return Number(value, spread, len(each) - 1) if len(each) >= FEWEST else Number(value)


def difference(baseline: Measurement, other: Measurement, reading: Reading, **names: Any) -> Difference:
    """The difference of a number from the baseline's, paired if both were measured on the same images.

    Args:
        baseline, other: averaged measurements of two models.
        reading: the number.
        names: `title`, `name`, `label`, `kind` and `what` of the difference.
    """
    names = {"title": "", "name": "", "label": "", **names}
    half, pairs = _paired(baseline, other, reading)
    first, second = number(baseline, reading), number(other, reading)
    return Difference(baseline=first, number=second, paired=half, pairs=pairs, **names)


def same_conditions(first: Measurement, other: Measurement) -> bool:
    """Whether two stress tests have the same conditions, such as corruptions: otherwise their means do not compare.

    >>> def under(*names):
    ...     return Measurement("corruptions", "a", {}, {}, {"corruption": names})
    >>> same_conditions(under("fog", "snow"), under("snow", "fog")), same_conditions(under("fog", "snow"), under("fog"))
    (True, False)
    """
    axes = (*_CONDITIONS, *_CONDITIONS_OF.get(first.kind, ()))
    return all(set(first.axes.get(axis, ())) == set(other.axes.get(axis, ())) for axis in axes)


def units(combined: Combined, reading: Reading) -> np.ndarray:
    """One number per part, group of images or run: jackknife pseudo-values, which are the units' own for a mean."""
    if not combined.without or combined.whole is None:
        return np.empty(0)
    try:
        rest = [reading(without)[0] for without in combined.without]
    except (LookupError, ArithmeticError):
        return np.empty(0)  # a part may not have the value
    each = pseudo_values(reading(combined.whole)[0], rest)
    return each if np.isfinite(each).all() else np.empty(0)


def _paired(baseline: Measurement, other: Measurement, reading: Reading) -> tuple[float, int]:
    """Half the paired 95 % interval of a difference and the number of pairs; NaN and 0 if the images differ."""
    if not (isinstance(baseline, Combined) and isinstance(other, Combined)):
        return math.nan, 0
    if sorted(baseline.keys) != sorted(other.keys) or len(set(baseline.keys)) < max(2, len(baseline.keys)):
        return math.nan, 0
    first, second = (
        dict(zip(one.keys, each, strict=True)) if len(each := units(one, reading)) else {} for one in (baseline, other)
    )
    if not first or not second:
        return math.nan, 0
    own, others = ([each[key] for key in baseline.keys] for each in (first, second))
    half = paired_half_width(own, others, parts=baseline.over != "images")
    return half, len(first) if math.isfinite(half) else 0


@cache
def quantile(freedom: float) -> float:
    """Half the width of a 95 % interval in standard errors.

    >>> round(quantile(math.inf), 3), round(quantile(2), 3)
    (1.96, 4.303)
    """
    if math.isinf(freedom):
        return NORMAL
    return student_quantile(
        0.975, max(1, int(freedom))
    )  # rounded down: fewer degrees of freedom give the wider interval
