"""One number of each model, its noise, and whether it differs from the baseline's: what all parts of a report print.

A number of a measurement is defined by a `Reading`, a function that gives it and the standard error that the instrument
knows. Titles, tables and the summary of a report ask the same functions here, so that they cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import NORMAL, Combined
from vitlab.core.statistics import pseudo_values, student_quantile
from vitlab.reporting.findings import UNKNOWN, finding, verdict

#: A number of a measurement, and the standard error that the instrument gives for it; NaN where either is not known.
Reading = Callable[[Measurement], tuple[float, float]]

#: Differences that are the same up to rounding have no spread.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Number:
    """A number with its noise.

    Args:
        value: the number.
        error: its standard error; NaN where it is not known.
        freedom: degrees of freedom of the error: R − 1 of R repeats, infinite where the instrument gives the error.
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
    """One number of one model against the baseline's.

    Models that were measured on the same images are paired: the interval is Student's over the differences on the same
    parts of the images, or on the same groups of single images. Else it is that of two independent numbers.

    Args:
        title: of the section.
        name: of the value.
        label: of the model.
        baseline, number: of the baseline and the model.
        kind: of the measurement.
        paired: half the width of the paired 95 % interval; NaN where models are not paired.
        pairs: over how many pairs.

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

    @property
    def value(self) -> float:
        """The model's number minus the baseline's."""
        return self.number.value - self.baseline.value

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval; √(a² + b²) of the half widths of both numbers where not paired."""
        if math.isfinite(self.paired):
            return self.paired
        return math.hypot(self.number.half_width, self.baseline.half_width)

    @property
    def strength(self) -> float:
        """How many half widths the difference is: above 1 it is larger than the noise; NaN where that is not known."""
        return math.nan if self.verdict == UNKNOWN else abs(self.value) / self.half_width

    @property
    def verdict(self) -> str:
        """In words."""
        return verdict(self.value, self.half_width)


def number(measurement: Measurement, reading: Reading) -> Number:
    """A number of a model; its noise is that of the repeats or that of the instrument, whichever is larger.

    Noise over groups of single images is taken where the instrument gives none: both are over the same images.
    """
    made = measurement if isinstance(measurement, Combined) else None
    value, own = reading(made.whole if made and made.whole else measurement)
    if made is None or not math.isfinite(value):
        return Number(value, own)
    each = units(made, reading)
    spread = float(each.std(ddof=1) / math.sqrt(len(each))) if len(each) > 1 else math.nan
    if not spread > _ROUNDING * abs(value):
        return Number(value, own)
    if made.over == "images" and math.isfinite(own):
        return Number(value, own)
    if NORMAL * own >= quantile(len(each) - 1) * spread:  # as the bars of figures show it
        return Number(value, own)
    return Number(value, spread, len(each) - 1)


def difference(baseline: Measurement, other: Measurement, reading: Reading, **told: Any) -> Difference:
    """A number of a model against the baseline's, paired where both were measured on the same images.

    Args:
        baseline, other: averaged measurements of two models.
        reading: the number.
        told: title, name, label and kind.
    """
    names: dict[str, Any] = {"title": "", "name": "", "label": "", **told}
    half, pairs = _paired(baseline, other, reading)
    first, second = number(baseline, reading), number(other, reading)
    return Difference(baseline=first, number=second, paired=half, pairs=pairs, **names)


def units(made: Combined, reading: Reading) -> np.ndarray:
    """One number for each part, group of images or run: those of a mean, the pseudo-values of a jackknife of others."""
    if not made.without or made.whole is None:
        return np.empty(0)
    try:
        rest = [reading(without)[0] for without in made.without]
    except (LookupError, ArithmeticError):
        return np.empty(0)  # a part may lack what the whole has
    each = pseudo_values(reading(made.whole)[0], rest)
    return each if np.isfinite(each).all() else np.empty(0)


def told(
    what: str,
    measurements: Sequence[Measurement],
    reading: Reading,
    unit: str = "",
    *,
    words: tuple[str, str] = ("lower", "higher"),
) -> str:
    """The sentence about one number of each model, the baseline first.

    Args:
        what: the number's name.
        measurements: of the models.
        reading: the number, in the unit.
        unit: such as `%`, whose differences are points.
        words: for less and for more.
    """
    numbers = [number(measurement, reading) for measurement in measurements]
    judged = [difference(measurements[0], other, reading).verdict for other in measurements[1:]]
    names = [measurement.subject for measurement in measurements]
    halves = [each.half_width for each in numbers]
    return finding(what, [each.value for each in numbers], names, unit, halves=halves, verdicts=judged, words=words)


def _paired(baseline: Measurement, other: Measurement, reading: Reading) -> tuple[float, int]:
    """Half the paired 95 % interval of a difference and the number of pairs; NaN where images are not the same."""
    if not (isinstance(baseline, Combined) and isinstance(other, Combined)):
        return math.nan, 0
    if sorted(baseline.keys) != sorted(other.keys) or len(set(baseline.keys)) < max(2, len(baseline.keys)):
        return math.nan, 0
    first, second = (
        dict(zip(made.keys, each, strict=True)) if len(each := units(made, reading)) else {}
        for made in (baseline, other)
    )
    if not first or not second:
        return math.nan, 0
    gaps = np.array([second[key] - first[key] for key in baseline.keys])
    spread = float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    size = max(np.abs([*first.values(), *second.values()]))
    if not spread > _ROUNDING * size:
        return math.nan, 0
    return quantile(len(gaps) - 1) * spread, len(gaps)


@cache
def quantile(freedom: float) -> float:
    """How many standard errors a 95 % interval reaches to each side.

    >>> round(quantile(math.inf), 3), round(quantile(2), 3)
    (1.96, 4.303)
    """
    if math.isinf(freedom):
        return NORMAL
    return student_quantile(0.975, max(1, int(freedom)))  # fewer degrees of freedom are the wider interval
