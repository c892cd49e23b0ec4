"""Models against the baseline: which numbers of a measurement are compared."""

from __future__ import annotations

import math
import re

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import auxiliary
from vitlab.reporting.judging import Difference, Number, difference, number
from vitlab.reporting.readings import reading
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


def compare(section: Section) -> list[Difference]:
    """All models of a section against the baseline, in the numbers that both have; none where there is no baseline."""
    if not section.has_baseline:
        return []
    first, *others = section.averaged()
    own = numbers(first)
    return [
        difference(first, other, reading(name), title=section.title, name=name, label=other.subject, kind=section.kind)
        for other in others
        for name in _shared(own, numbers(other))
    ]


def numbers(measurement: Measurement) -> dict[str, Number]:
    """The few numbers that stand for an averaged measurement, those with known noise first, then single ones.

    `readings.reduced` says which number stands for an array. Whole numbers, truth values and text are labels or counts,
    and are left out, as are the `FRAME` and arrays that another number `STANDS_FOR`.

    >>> found = Measurement("loss", "a", {"nll": np.array([1.0, 3.0]), "edges": np.arange(2.0)},
    ...     {"nll": ("layer",), "edges": ("edge",)})
    >>> numbers(found)
    {'nll': Number(value=2.0, error=nan, freedom=inf)}
    """
    if measurement.kind in PICTURES:
        return {}
    aside = auxiliary(measurement)
    eligible = [name for name in measurement.values if name not in aside and _is_finding(measurement, name)]
    found = {name: number(measurement, reading(name)) for name in eligible}
    finite = {name: one for name, one in found.items() if math.isfinite(one.value)}
    for name in [array for one in finite for array in STANDS_FOR.get(one, ())]:
        finite.pop(name, None)
    order = sorted(finite, key=lambda name: (math.isnan(finite[name].error), np.ndim(measurement.values[name]) > 0))
    return {name: finite[name] for name in order[:MOST]}


def _shared(first: dict[str, Number], other: dict[str, Number]) -> list[str]:
    return [name for name in first if name in other]


def _is_finding(measurement: Measurement, name: str) -> bool:
    array = np.asarray(measurement.values[name])
    return np.issubdtype(array.dtype, np.floating) and bool(array.size) and not _FRAMING.search(name)
