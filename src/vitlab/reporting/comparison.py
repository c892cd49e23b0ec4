"""Models held against the baseline: which numbers are compared, by how much they differ, and whether that is noise."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import auxiliary, errors
from vitlab.core.statistics import student_quantile
from vitlab.reporting.findings import NORMAL, UNKNOWN, verdict
from vitlab.reporting.sections import PICTURES, Section

#: Names that are no findings: the frame of a figure, one of its bands, or a distribution whose mean says nothing.
FRAME = "bounds? edges? counts? grid index uniform histogram distribution quantiles plane curve block stage frequency"
_FRAMING = re.compile(rf"(^|_)({'|'.join(FRAME.split())}|products|residuals|converged|steps|p\d+)(_|$)")

#: Arrays that a single number of the same measurement stands for: compared too, they would count the same twice.
STANDS_FOR = {
    "mean_accuracy": ("accuracy", "error"),
    "overall": ("mean",),
    "positive_average": ("eigenvalues",),
    "head_similarity": ("head_pairs",),
    "mce": ("ce",),
    "relative_mce": ("relative_ce",),
    "mfr": ("flip_rate",),
    "mean_miou": ("miou", "group_miou", "corruption_miou"),
    "shape_bias": ("share",),  # the shares of all decisions, whose mean is the same for any model
}

#: How many numbers of a kind are compared at most.
MOST = 6


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

    Numbers count as unpaired. Models that saw the same images are paired, and their difference is usually surer than
    this says: the verdict is cautious.

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

    @property
    def value(self) -> float:
        """The model's number minus the baseline's."""
        return self.number.value - self.baseline.value

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval: √(a² + b²) of the half widths of both numbers."""
        return math.hypot(self.number.half_width, self.baseline.half_width)

    @property
    def strength(self) -> float:
        """How many half widths the difference is: above 1 it is larger than the noise; NaN where that is not known."""
        return math.nan if self.verdict == UNKNOWN else abs(self.value) / self.half_width

    @property
    def verdict(self) -> str:
        """In words."""
        return verdict(self.value, self.number.half_width, self.baseline.half_width)


def compare(section: Section) -> list[Difference]:
    """All models of a section against the baseline, in the numbers that both have; none where there is no baseline."""
    tables = {label: numbers(found) for label, found in section.repeats.items()}
    if not section.has_baseline:
        return []
    first, *others = tables
    return [
        Difference(section.title, name, label, tables[first][name], tables[label][name], section.kind)
        for label in others
        for name in tables[first]
        if name in tables[label]
    ]


def numbers(repeats: Sequence[Measurement]) -> dict[str, Number]:
    """The few numbers that stand for a measurement, those with known noise first, then single ones.

    Arrays stand for their mean over all axes, over epochs for the last one. Whole numbers, truth values and text are
    labels or counts, and are left out, as are the `FRAME` and arrays that another number `STANDS_FOR`.

    >>> found = Measurement("loss", "a", {"nll": np.array([1.0, 3.0]), "edges": np.arange(2.0)},
    ...     {"nll": ("layer",), "edges": ("edge",)})
    >>> numbers([found])
    {'nll': Number(value=2.0, error=nan, freedom=inf)}
    """
    first, aside = repeats[0], auxiliary(repeats[0])
    if first.kind in PICTURES:
        return {}
    eligible = [name for name in first.values if name not in aside and _is_finding(first, name)]
    found = {name: _number(repeats, name) for name in eligible}
    finite = {name: number for name, number in found.items() if math.isfinite(number.value)}
    for name in [array for number in finite for array in STANDS_FOR.get(number, ())]:
        finite.pop(name, None)
    order = sorted(finite, key=lambda name: (math.isnan(finite[name].error), np.ndim(first.values[name]) > 0))
    return {name: finite[name] for name in order[:MOST]}


def _number(repeats: Sequence[Measurement], name: str) -> Number:
    """The mean over repeats; its noise is that of the repeats or that of the instrument, whichever is larger."""
    each = np.array([_collapse(repeat, name) for repeat in repeats if name in repeat.values])
    value, own = float(each.mean()), _own_error(repeats, name)
    spread = float(each.std(ddof=1) / math.sqrt(len(each))) if len(each) > 1 else math.nan
    if spread > 0 and not NORMAL * own >= quantile(len(each) - 1) * spread:  # as the bars of figures show it
        return Number(value, spread, len(each) - 1)
    return Number(value, own)


def _own_error(repeats: Sequence[Measurement], name: str) -> float:
    """The instrument's own error, of one repeat.

    Over axes the errors are averaged, as if they always went the same way: layers are measured on the same images.
    """
    found = []
    for repeat in repeats:
        error, interval = errors(repeat).get(name), f"{name}_interval"
        if error in repeat.values:
            found.append(_collapse(repeat, str(error)))
        elif interval in repeat.values:
            found.append(_half(repeat, name, interval) / quantile(math.inf))
    return float(np.mean(found)) if found and np.isfinite(found).all() else math.nan


def _half(measurement: Measurement, name: str, interval: str) -> float:
    """Half of a 95 % interval, whether it is given as (low, high) or, with the value's own axes, as its half."""
    array = np.asarray(measurement.values[interval], dtype=float)
    if array.ndim == np.ndim(measurement.values[name]):
        return float(array.mean())
    return float(np.mean(array[..., 1] - array[..., 0])) / 2


def _collapse(measurement: Measurement, name: str) -> float:
    """One number for an array: the mean of what is finite, over epochs the last."""
    array = np.asarray(measurement.values[name], dtype=float)
    if measurement.dims.get(name, ())[:1] == ("epoch",) and len(array):
        array = array[-1]
    known = array[np.isfinite(array)]
    return float(known.mean()) if known.size else math.nan


def _is_finding(measurement: Measurement, name: str) -> bool:
    array = np.asarray(measurement.values[name])
    return np.issubdtype(array.dtype, np.floating) and bool(array.size) and not _FRAMING.search(name)


@cache
def quantile(freedom: float) -> float:
    """How many standard errors a 95 % interval reaches to each side.

    >>> round(quantile(math.inf), 3), round(quantile(2), 3)
    (1.96, 4.303)
    """
    if math.isinf(freedom):
        return NORMAL
    return student_quantile(0.975, max(1, int(freedom)))  # fewer degrees of freedom are the wider interval
