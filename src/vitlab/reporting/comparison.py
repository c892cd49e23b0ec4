"""Select the numbers of a measurement that are shown in tables and compared with the baseline."""

from __future__ import annotations

import math
import re

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import auxiliary
from vitlab.reporting.differences import Difference, Number, difference, number, same_conditions
from vitlab.reporting.readings import in_words, reading
from vitlab.reporting.sections import PICTURES, Section

#: Words in the names of values that are not results: coordinates of a figure, its bands, or distributions.
FRAME = "bounds? edges? counts? grid index uniform histogram distribution quantiles plane curve block stage frequency"
_FRAMING = re.compile(rf"(^|_)({'|'.join(FRAME.split())}|products|residuals|converged|steps|p\d+)(_|$)")

#: Values that are not results, by kind: settings of the schedule, speed, and numbers of samples.
NOT_RESULTS = {"training": ("lr", "learning_rate", "images_per_second", "test_images", "questions")}

#: Arrays that a single number of the same measurement summarises: comparing both would count one result twice.
STANDS_FOR = {
    "mean_accuracy": ("accuracy", "error"),
    "overall": ("mean",),
    "positive_average": ("eigenvalues",),
    "head_similarity": ("head_pairs",),
    "mce": ("ce",),
    "relative_mce": ("relative_ce",),
    "mfr": ("flip_rate",),
    "mean_miou": ("miou", "group_miou", "corruption_miou"),
    "overall_prior": ("prior",),
    "shape_bias": ("share",),  # the mean of the shares is the same for every model
}

#: Arrays of which each element is a number, `name[label]`, by kind.
BY_LABEL = {"question_answers": ("accuracy",)}

#: The number of a kind that comes first: the mean distance over all pairs of tokens, which CB draws, is the distance
#: per query divided by the number of tokens.
FIRST = {"attention_distance": "attended"}

#: The maximum number of compared numbers per kind, and that of kinds with numbers by label.
MOST = 6
MOST_BY_LABEL = 12


def compare(section: Section) -> list[Difference]:
    """Differences of all models of a section from the baseline, in the numbers that both have.

    The list is empty if the section does not have the baseline. Models that were measured under other conditions, such
    as other corruptions, are compared in clean accuracy only.
    """
    if not section.has_baseline:
        return []
    first, *others = section.averaged()
    own = numbers(first)
    about = {"title": section.title, "kind": section.kind}
    return [
        difference(first, other, reading(name), name=name, what=in_words(first, name), label=other.subject, **about)
        for other in others
        for name in _shared(own, numbers(other))
        if name == "clean_accuracy" or same_conditions(first, other)
    ]


def numbers(measurement: Measurement) -> dict[str, Number]:
    """The numbers that summarise an averaged measurement: those with known noise first, then scalars.

    `readings.reduced` defines the number for an array. Integers, booleans and strings are labels or counts and are
    skipped, as are names with a word of `FRAME`, those in `NOT_RESULTS` and arrays in `STANDS_FOR`.

    >>> measurement = Measurement("loss", "a", {"nll": np.array([1.0, 3.0]), "edges": np.arange(2.0)},
    ...     {"nll": ("layer",), "edges": ("edge",)})
    >>> numbers(measurement)
    {'nll': Number(value=2.0, error=nan, freedom=inf)}
    """
    if measurement.kind in PICTURES:
        return {}
    skipped = auxiliary(measurement)
    eligible = [name for name in measurement.values if name not in skipped and _is_result(measurement, name)]
    eligible = [part for name in eligible for part in _elements(measurement, name)]
    each = {name: number(measurement, reading(name)) for name in eligible}
    finite = {name: one for name, one in each.items() if math.isfinite(one.value)}
    for name in [array for one in finite for array in STANDS_FOR.get(one, ())]:
        finite.pop(name, None)
    order = sorted(
        finite,
        key=lambda name: (
            name != FIRST.get(measurement.kind),
            math.isnan(finite[name].error),
            _is_array(measurement, name),
        ),
    )
    return {name: finite[name] for name in order[: MOST_BY_LABEL if measurement.kind in BY_LABEL else MOST]}


def _shared(first: dict[str, Number], other: dict[str, Number]) -> list[str]:
    return [name for name in first if name in other]


def _elements(measurement: Measurement, name: str) -> list[str]:
    """The name of a value, or those of its elements."""
    if name not in BY_LABEL.get(measurement.kind, ()):
        return [name]
    return [f"{name}[{label}]" for label in measurement.axes.get(measurement.dims[name][0], ())]


def _is_array(measurement: Measurement, name: str) -> bool:
    return name not in measurement.values or np.ndim(measurement.values[name]) > 0


def _is_result(measurement: Measurement, name: str) -> bool:
    array = np.asarray(measurement.values[name])
    if name in NOT_RESULTS.get(measurement.kind, ()):
        return False
    return np.issubdtype(array.dtype, np.floating) and bool(array.size) and not _FRAMING.search(name)
