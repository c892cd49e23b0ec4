"""Repeats of one measurement, on parts of the images or with other seeds, as one with standard errors.

Parts of the images are pooled by the rules of the measurement (`core/pooling.py`), and errors are those of a jackknife
over parts. Runs with other seeds are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.pooling import leave_one_out, mean, pool, split, varies
from vitlab.core.statistics import student_quantile

#: Settings in which repeats may differ.
OF_A_REPEAT = ("seed",)

#: What the errors of a combined measurement are over.
Over = Literal["parts", "images", "runs"]

#: How many standard errors a 95 % interval reaches to each side where they are well known.
NORMAL = 1.96


@dataclass(frozen=True, eq=False)
class Combined(Measurement):
    """Several Measurements as one.

    Args:
        whole: the same without the errors over repeats: only those that the instrument gives.
        units: what the errors are over: parts, groups of images, or runs.
        keys: what identifies each unit: equal keys of two models mean the same images; empty where that is not known.
        without: the measurement without each unit, for a jackknife.
        over: what the units are; parts and groups of images are pooled, runs are averaged.
    """

    whole: Measurement | None = None
    units: tuple[Measurement, ...] = ()
    keys: tuple[str, ...] = ()
    without: tuple[Measurement, ...] = ()
    over: Over = "parts"


def average(measurements: Sequence[Measurement], *, student: bool = False) -> Measurement:
    """Several Measurements of the same kind and model as one, and the errors of its values.

    Parts of the images are pooled, and each pooled number gets a jackknife error over the R parts; where numbers of
    single images are stored, over groups of these. Runs are averaged, with s / √R (R − 1 in s²), NaN where fewer than
    two have the number. An error that the instrument gives itself stays where it is larger: it may know of images what
    the repeats know of seeds. What is the same in all repeats, such as edges and bounds, gets no error.

    Args:
        measurements: at least one; those that were given twice count once.
        student: widen errors over R repeats so that ±1.96 of them is Student's 95 % interval, for drawings.

    Returns:
        A Measurement whose provenance holds `repeats`, and lists where the repeats differ.

    >>> found = [Measurement("loss", "a model", {"nll": np.array(x)}, {"nll": ()}) for x in (1.0, 3.0)]
    >>> mean = average(found)
    >>> float(mean.values["nll"]), float(mean.values[mean.errors["nll"]])  # s = √2, R = 2
    (2.0, 1.0)
    """
    repeats = distinct(measurements)
    if not repeats:
        raise VitlabError("the average of no measurements was asked for; give at least one")
    for other in repeats[1:]:
        _check(repeats[0], other)
    units, keys, over = _units(runs := _runs(repeats))
    if len(units) < 2:
        return repeats[0]
    whole = _mean_of_runs(units) if over == "runs" else pool(runs[0])
    if len(repeats) > 1:
        about = {**_together([each.provenance for each in repeats]), "repeats": len(repeats)}
        about |= {"images": whole.provenance["images"]} if "images" in whole.provenance else {}
        whole = replace(whole, settings=_together([each.settings for each in repeats]), provenance=about)
    fields = {name: getattr(whole, name) for name in Measurement.__dataclass_fields__}
    rest = _runs_without_one(units) if over == "runs" else leave_one_out(units)
    made = Combined(**fields, whole=whole, units=tuple(units), keys=tuple(keys), without=rest, over=over)
    return _with_errors(made, student_factor(len(units)) if student else 1.0)


def distinct(measurements: Sequence[Measurement]) -> list[Measurement]:
    """The measurements without copies: all numbers, and the images or the seed, as those of an earlier one."""
    kept: list[Measurement] = []
    for measurement in measurements:
        if not any(_same(measurement, other) for other in kept):
            kept.append(measurement)
    return kept


def repeat_of(measurement: Measurement) -> tuple[str, ...]:
    """What sets a repeat apart from others of the same kind, model and settings: seeds, the part, and the images."""
    about = measurement.provenance
    told = [about.get(key) for key in ("seed", "repeat", "part", "data")]
    return tuple(map(str, [*(measurement.settings.get(key) for key in OF_A_REPEAT), *told]))


def auxiliary(measurement: Measurement) -> set[str]:
    """The values that are no findings: standard errors, `<name>_interval` of 95 %, and what is stored for pooling."""
    intervals = {name for name in measurement.values if name.removesuffix("_interval") in measurement.values}
    stored = {name for name, rule in measurement.pooling.items() if rule[0] in ("sum", "concatenate", "constant")}
    return {*measurement.errors.values(), *(name for name in intervals if name.endswith("_interval")), *stored}


def standard_error(stack: np.ndarray) -> np.ndarray:
    """s / √R over the first axis, with R − 1 in s², of what is finite; NaN where there are fewer than two.

    >>> standard_error(np.array([[1.0, 1.0], [3.0, np.nan]])).tolist()
    [1.0, nan]
    """
    known = np.isfinite(stack)
    count = known.sum(0)
    spread = np.where(known, stack - mean(stack), 0.0)
    enough = count > 1
    error: np.ndarray = np.sqrt((spread**2).sum(0) / np.where(enough, count - 1, 1) / np.where(enough, count, 1))
    return np.where(enough, error, np.nan)


@cache
def student_factor(repeats: int) -> float:
    """By how much Student's 95 % interval over so many repeats is wider than the normal one.

    >>> round(student_factor(3), 3)  # 4.303 / 1.96
    2.195
    """
    return student_quantile(0.975, repeats - 1) / NORMAL if repeats > 1 else 1.0


def _runs(repeats: Sequence[Measurement]) -> list[list[Measurement]]:
    """Repeats by their seeds: those of one seed on other images are parts of one run, in the order of the parts."""
    runs: dict[tuple[str, ...], list[Measurement]] = {}
    for repeat in repeats:
        runs.setdefault(repeat_of(repeat)[:-2], []).append(repeat)
    found: list[list[Measurement]] = []
    for run in runs.values():
        if len({repeat_of(repeat)[-2:] for repeat in run}) == len(run):
            found.append(sorted(run, key=_place))
        else:  # nothing says that these are parts
            found += [[repeat] for repeat in run]
    return found


def _place(measurement: Measurement) -> tuple[float, str]:
    part = measurement.provenance.get("part")
    first = part[0] if isinstance(part, list) and part else math.inf
    return float(first) if isinstance(first, (int, float)) else math.inf, str(measurement.provenance.get("data", ""))


def _units(runs: Sequence[Sequence[Measurement]]) -> tuple[list[Measurement], list[str], Over]:
    """What errors are over: runs; of one run groups of single images where these are stored, else the parts."""
    if len(runs) > 1:
        return [pool(run) for run in runs], [""] * len(runs), "runs"
    run = runs[0]
    images = [str(part.provenance.get("data") or "") for part in run]
    groups = split(pool(run))
    if not groups:
        named = zip(run, images, strict=True)
        return list(run), [f"{part.provenance.get('part')} {data}" if data else "" for part, data in named], "parts"
    every = "; ".join(images) if all(images) else ""
    counts = [group.provenance.get("images") for group in groups]
    keys = [f"{every}, group {i} of {len(groups)}, {count} images" for i, count in enumerate(counts)]
    return groups, keys if every else [""] * len(groups), "images"


def _mean_of_runs(runs: Sequence[Measurement]) -> Measurement:
    values = {name: mean(np.stack([run.values[name] for run in runs])) for name in runs[0].values}
    return replace(runs[0], values=values)


def _runs_without_one(runs: Sequence[Measurement]) -> tuple[Measurement, ...]:
    return tuple(_mean_of_runs([run for j, run in enumerate(runs) if j != i]) for i in range(len(runs)))


def _with_errors(made: Combined, widening: float) -> Combined:
    """The measurement with an error over units for each number that varies between them."""
    values, dims, errors = dict(made.values), dict(made.dims), dict(made.errors)
    aside = auxiliary(made)
    for name in made.values:
        if name in aside:
            continue
        found = _error_over_units(made, name)
        if found is None:
            continue
        error = errors.get(name) or _free_name(name, values)
        own = np.asarray(values.get(error, np.nan), dtype=float)
        if made.over == "images":  # both are over the same images; the instrument's is exact
            values[error] = np.where(np.isfinite(own), own, widening * found)
        else:
            values[error] = np.fmax(own, widening * found)
        dims[error], errors[name] = made.dims.get(name, ()), error
    return replace(made, values=values, dims=dims, errors=errors)


def _error_over_units(made: Combined, name: str) -> np.ndarray | None:
    """The error of one value; None where it is the same in all units."""
    direct = made.over == "runs" or made.pooling.get(name, ("mean",))[0] == "mean"
    if direct:
        stack = np.stack([unit.values[name] for unit in made.units])
        return standard_error(stack) if varies(stack) else None
    stack = np.stack([rest.values[name] for rest in made.without])
    return (len(stack) - 1) * standard_error(stack) if varies(stack) else None


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    return f"{name}_error" if f"{name}_error" not in taken else f"{name}_standard_error"


def _same(one: Measurement, other: Measurement) -> bool:
    if (one.kind, one.subject, set(one.values)) != (other.kind, other.subject, set(other.values)):
        return False
    if repeat_of(one) != repeat_of(other) or digest_of(one) != digest_of(other):
        return False
    pairs = [(one.values[name], other.values[name]) for name in one.values]
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == b.dtype.kind == "f") for a, b in pairs)


def _check(first: Measurement, other: Measurement) -> None:
    """Refuse what is no repeat of the first."""
    what = f"{first.kind} of {first.subject!r}"
    if (first.kind, first.subject) != (other.kind, other.subject):
        raise VitlabError(f"{what} and {other.kind} of {other.subject!r} are no repeats; average those of one kind")
    weights = [digest_of(each) for each in (first, other)]
    if weights[0] != weights[1]:
        raise VitlabError(f"{what} was measured with weights {weights[0]} and {weights[1]}; average those of one model")
    for key in {**first.settings, **other.settings}:
        if key not in OF_A_REPEAT and first.settings.get(key) != other.settings.get(key):
            given = f"{first.settings.get(key)!r} and {other.settings.get(key)!r}"
            raise VitlabError(f"repeats of {what} differ in {key}: {given}; average those with the same settings")
    if first.values.keys() != other.values.keys():
        odd = ", ".join(sorted(first.values.keys() ^ other.values.keys()))
        raise VitlabError(f"repeats of {what} do not hold the same values ({odd} only in some); measure them alike")
    for name in first.values:
        shapes = _shape(first, name), _shape(other, name)
        if shapes[0] != shapes[1] or first.dims.get(name) != other.dims.get(name):
            raise VitlabError(
                f"repeats of {what} differ in the shape of {name}: {shapes[0]} and {shapes[1]}; measure them alike"
            )


def digest_of(measurement: Measurement) -> str:
    """The digest of the weights that were measured; empty where it is not known."""
    model = measurement.provenance.get("model")
    return str(model.get("weights") or "") if isinstance(model, dict) else ""


def _shape(measurement: Measurement, name: str) -> tuple[int, ...]:
    """The shape of a value, without the axis along which parts follow each other."""
    rule = measurement.pooling.get(name, ("mean",))
    joined = rule[1] if rule[0] == "concatenate" else None
    sides = zip(measurement.dims.get(name, ()), measurement.values[name].shape, strict=True)
    return tuple(side for axis, side in sides if axis != joined)


def _together(notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Notes of several repeats: what all agree on as it is, the rest as a list."""
    merged: dict[str, Any] = {}
    for key in dict.fromkeys(key for note in notes for key in note):
        said = [note.get(key) for note in notes]
        merged[key] = said[0] if all(each == said[0] for each in said) else said
    return merged
