"""Repeats of one measurement, on other images or with other seeds, taken together: means and their standard errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement

#: Settings in which repeats may differ.
OF_A_REPEAT = ("seed",)


def average(measurements: Sequence[Measurement], *, widening: float = 1.0) -> Measurement:
    """Several Measurements of the same kind and subject as one.

    Each number becomes its mean x̄ over the R repeats that have it, with `<name>_error` = s / √R (R − 1 in s²), NaN
    where fewer than two have it. An error that the instrument gives itself stays where it is larger: it may know of
    images what the repeats know of seeds. What is the same in all repeats, such as edges and bounds, gets no error.

    Args:
        measurements: at least one; those that were given twice count once.
        widening: a factor on errors over repeats, for drawings that take ±1.96 of them as 95 %: few repeats need more.

    Returns:
        A Measurement whose provenance holds `repeats`, and lists where the repeats differ.

    >>> found = [Measurement("loss", "a model", {"nll": np.array(x)}, {"nll": ()}) for x in (1.0, 3.0)]
    >>> mean = average(found)
    >>> float(mean.values["nll"]), float(mean.values["nll_error"])  # s = √2, R = 2
    (2.0, 1.0)
    """
    repeats = distinct(measurements)
    if not repeats:
        raise VitlabError("the average of no measurements was asked for; give at least one")
    first = repeats[0]
    if len(repeats) == 1:
        return first
    for other in repeats[1:]:
        _check(first, other)
    stacks = {name: np.stack([np.asarray(each.values[name]) for each in repeats]) for name in first.values}
    values = {name: _mean(stack) for name, stack in stacks.items()}
    dims = dict(first.dims)
    own, aside = errors(first), auxiliary(first)
    for name, stack in stacks.items():
        if name in aside or not _varies(stack):
            continue
        error = own.get(name, f"{name}_error")
        values[error] = np.fmax(values.get(error, np.nan), widening * standard_error(stack))
        dims[error] = first.dims.get(name, ())
    settings = _together([each.settings for each in repeats])
    about = {**_together([each.provenance for each in repeats]), "repeats": len(repeats)}
    return replace(first, values=values, dims=dims, settings=settings, provenance=about)


def distinct(measurements: Sequence[Measurement]) -> list[Measurement]:
    """The measurements without those whose numbers are all the same as those of an earlier one: no repeats, copies."""
    kept: list[Measurement] = []
    for measurement in measurements:
        if not any(_same(measurement, other) for other in kept):
            kept.append(measurement)
    return kept


def errors(measurement: Measurement) -> dict[str, str]:
    """For each value that comes with a standard error, the name of that error.

    `drop_error` is that of `drop`; where there is no such value, `clean_error` is that of the first `clean_…`, and
    `standard_error` that of the first value, with the same axes. What has an error or interval itself is a quantity,
    such as `test_error`, the share of images that are wrong, with its `test_error_interval`.

    >>> values = {"accuracy": np.zeros(2), "standard_error": np.ones(2), "test_error": np.array(0.1)}
    >>> dims = {"accuracy": ("mask",), "standard_error": ("mask",), "test_error": ()}
    >>> errors(Measurement("occlusion", "a model", values, dims))
    {'accuracy': 'standard_error'}
    """
    found: dict[str, str] = {}
    for name in measurement.values:
        quantity = any(f"{name}_{what}" in measurement.values for what in ("error", "interval"))
        if quantity or not name.endswith("_error"):
            continue
        stem = name.removesuffix("_error").removesuffix("standard").removesuffix("_")
        owner = stem if stem in measurement.values else _first_like(measurement, name, f"{stem}_" if stem else "")
        if owner:
            found.setdefault(owner, name)
    return found


def auxiliary(measurement: Measurement) -> set[str]:
    """The values that only say how sure others are: standard errors, and the `<name>_interval` of 95 %."""
    intervals = {name for name in measurement.values if name.removesuffix("_interval") in measurement.values}
    return set(errors(measurement).values()) | {name for name in intervals if name.endswith("_interval")}


def standard_error(stack: np.ndarray) -> np.ndarray:
    """s / √R over the first axis, with R − 1 in s², of what is finite; NaN where there are fewer than two.

    >>> standard_error(np.array([[1.0, 1.0], [3.0, np.nan]])).tolist()
    [1.0, nan]
    """
    known = np.isfinite(stack)
    count = known.sum(0)
    spread = np.where(known, stack - _mean(stack), 0.0)
    enough = count > 1
    error: np.ndarray = np.sqrt((spread**2).sum(0) / np.where(enough, count - 1, 1) / np.where(enough, count, 1))
    return np.where(enough, error, np.nan)


def _mean(stack: np.ndarray) -> np.ndarray:
    """The mean of what is finite over the first axis; what does not vary, text included, stays as it is."""
    if not _varies(stack):
        return np.asarray(stack[0])
    known = np.isfinite(stack)
    count = known.sum(0)
    mean: np.ndarray = np.where(known, stack, 0.0).sum(0) / np.where(count, count, 1)
    return np.where(count > 0, mean, np.nan)


def _varies(stack: np.ndarray) -> bool:
    """Whether repeats differ in numbers (truth values count as 0 and 1)."""
    numeric = np.issubdtype(stack.dtype, np.number) or stack.dtype == bool
    return bool(numeric) and not all(np.array_equal(stack[0], each, equal_nan=True) for each in stack[1:])


def _same(one: Measurement, other: Measurement) -> bool:
    if (one.kind, one.subject, set(one.values)) != (other.kind, other.subject, set(other.values)):
        return False
    pairs = [(np.asarray(one.values[name]), np.asarray(other.values[name])) for name in one.values]
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == b.dtype.kind == "f") for a, b in pairs)


def _first_like(measurement: Measurement, error: str, start: str) -> str | None:
    """The first value with the axes of an error whose name starts like it and that is no error itself."""
    dims = measurement.dims.get(error, ())
    likely = (n for n in measurement.values if n.startswith(start) and not n.endswith(("_error", "_interval")))
    return next((name for name in likely if measurement.dims.get(name, ()) == dims), None)


def _check(first: Measurement, other: Measurement) -> None:
    """Refuse what is no repeat of the first."""
    what = f"{first.kind} of {first.subject!r}"
    if (first.kind, first.subject) != (other.kind, other.subject):
        raise VitlabError(f"{what} and {other.kind} of {other.subject!r} are no repeats; average those of one kind")
    for key in {**first.settings, **other.settings}:
        if key not in OF_A_REPEAT and first.settings.get(key) != other.settings.get(key):
            given = f"{first.settings.get(key)!r} and {other.settings.get(key)!r}"
            raise VitlabError(f"repeats of {what} differ in {key}: {given}; average those with the same settings")
    if first.values.keys() != other.values.keys():
        odd = ", ".join(sorted(first.values.keys() ^ other.values.keys()))
        raise VitlabError(f"repeats of {what} do not hold the same values ({odd} only in some); measure them alike")
    for name, value in first.values.items():
        shapes = np.shape(value), np.shape(other.values[name])
        if shapes[0] != shapes[1] or first.dims.get(name) != other.dims.get(name):
            raise VitlabError(
                f"repeats of {what} differ in the shape of {name}: {shapes[0]} and {shapes[1]}; measure them alike"
            )


def _together(notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Notes of several repeats: what all agree on as it is, the rest as a list."""
    merged: dict[str, Any] = {}
    for key in dict.fromkeys(key for note in notes for key in note):
        said = [note.get(key) for note in notes]
        merged[key] = said[0] if all(each == said[0] for each in said) else said
    return merged
