"""Combine repeats of a measurement, on parts of the images or with other seeds, into one with standard errors.

Parts of the images are pooled by the rules of the measurement (`core/pooling.py`); errors come from a jackknife over
parts. Runs with other seeds are averaged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.pooling import leave_one_out, mean, pool, split, varies, without_examples
from vitlab.core.statistics import FEWEST, none_bound, student_quantile

#: Settings in which repeats may differ.
REPEAT_SETTINGS = ("seed",)

#: The units over which the errors of a combined measurement are computed.
Over = Literal["parts", "images", "runs"]

#: Half width of a normal 95 % interval, in standard errors.
NORMAL = 1.96


@dataclass(frozen=True, eq=False)
class Combined(Measurement):
    """A measurement combined from several.

    Args:
        whole: the same measurement without errors over repeats, only with those computed by the instrument.
        units: the measurements over which errors are computed: parts, groups of images, or runs.
        keys: identifies each unit: equal keys of two models mean the same images; empty if unknown.
        without: the measurement without each unit, for a jackknife.
        over: kind of the units; parts and groups of images are pooled, runs are averaged.
    """

    whole: Measurement | None = None
    units: tuple[Measurement, ...] = ()
    keys: tuple[str, ...] = ()
    without: tuple[Measurement, ...] = ()
    over: Over = "parts"


def average(measurements: Sequence[Measurement], *, student: bool = False) -> Measurement:
    """Combine several measurements of the same kind and model into one with standard errors.

    Parts of the images are pooled; errors come from a jackknife over the R parts, or over images, or groups of many, if
    numbers per image are stored. Runs are averaged, with error s / √R (R − 1 in s²), NaN if fewer than two runs have a
    finite value. An error computed by the instrument is kept if it is larger: it may include the variation over images,
    which runs with different seeds do not show. Values that are equal in all repeats, such as edges and bounds, get no
    error.

    Args:
        measurements: at least one; duplicates are ignored.
        student: widen errors over R repeats so that ±1.96 errors is Student's 95 % interval, for reports. That of two
            repeats says little: the error is NaN unless the instrument gives a wider one. An error of 0 of outcomes
            that are equal on all images is replaced by an exact bound.

    Returns:
        A measurement whose provenance holds the number of `repeats`; entries that differ between repeats are lists.

    >>> found = [Measurement("loss", "a model", {"nll": np.array(x)}, {"nll": ()}) for x in (1.0, 3.0)]
    >>> mean = average(found)
    >>> float(mean.values["nll"]), float(mean.values[mean.errors["nll"]])  # s = √2, R = 2
    (2.0, 1.0)
    """
    repeats = [without_examples(each) for each in distinct(measurements)]
    if not repeats:
        raise VitlabError("the average of no measurements is undefined; give at least one")
    for other in repeats[1:]:
        _check(repeats[0], other)
    units, keys, over, rest = _units(runs := _runs(repeats))
    if len(units) < 2:
        return repeats[0]
    whole = _mean_of_runs(units) if over == "runs" else pool(runs[0])
    whole = _without_zero_errors(whole) if student else whole
    if len(repeats) > 1:
        about = {**_merge([each.provenance for each in repeats]), "repeats": len(repeats)}
        about |= {"images": whole.provenance["images"]} if "images" in whole.provenance else {}
        whole = replace(whole, settings=_merge([each.settings for each in repeats]), provenance=about)
    fields = {name: getattr(whole, name) for name in Measurement.__dataclass_fields__}
    combined = Combined(**fields, whole=whole, units=tuple(units), keys=tuple(keys), without=rest, over=over)
    return _with_errors(
        combined, student_factor(len(units)) if student else 1.0, show=not student or len(units) >= FEWEST
    )


def distinct(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Returns the measurements without duplicates, which have the same values, images and seeds."""
    unique: list[Measurement] = []
    for measurement in measurements:
        if not any(_same(measurement, other) for other in unique):
            unique.append(measurement)
    return unique


def repeat_of(measurement: Measurement) -> tuple[str, ...]:
    """Returns the identity of a repeat among those of the same kind, model and settings: seeds, part and images."""
    recorded = [measurement.provenance.get(key) for key in ("seed", "repeat", "part", "data")]
    return tuple(map(str, [*(measurement.settings.get(key) for key in REPEAT_SETTINGS), *recorded]))


class Chosen(NamedTuple):
    """The images of a measurement, as its `data` records them; all empty if it is in another form.

    Args:
        data: the set.
        selection: how many of its images were chosen, the same for all parts of them.
        part: the number of the part.
        parts: the number of parts; empty if all images were measured at once.
    """

    data: str = ""
    selection: str = ""
    part: str = ""
    parts: str = ""


def chosen(measurement: Measurement) -> Chosen:
    """Returns which images were measured.

    >>> data = "scenes test[64 of 512, evenly spaced, part 1 of 4] ab12"
    >>> chosen(Measurement("k", "a", {}, {}, provenance={"data": data}))
    Chosen(data='scenes test', selection='64 of 512', part='1', parts='4')
    """
    found = _CHOSEN.match(str(measurement.provenance.get("data", "")))
    return Chosen(*found.groups(default="")) if found else Chosen()


#: The data of a measurement, as `inputs.parts.fingerprint_of` writes it.
_CHOSEN = re.compile(r"(.* \w+)\[(all \d+|\d+ of \d+)(?:, evenly spaced)?(?:, part (\d+) of (\d+))?\]")


def conditions(measurement: Measurement) -> dict[str, Any]:
    """Returns what repeats must have in common besides the model: settings, preprocessing and the match of labels."""
    about = measurement.provenance
    how = dict(about.get("preprocessing") or {})
    augmentation = how.pop("augmentation", None) or {}
    return {
        **{key: value for key, value in measurement.settings.items() if key not in REPEAT_SETTINGS},
        **{f"preprocessing {key}": value for key, value in how.items() if key != "source"},
        **{f"augmentation {key}": value for key, value in augmentation.items()},
        **({"labels": about["labels"]} if about.get("labels") else {}),
    }


def auxiliary(measurement: Measurement) -> set[str]:
    """Returns the auxiliary values: standard errors, 95 % intervals `<name>_interval`, and data for pooling."""
    intervals = {name for name in measurement.values if name.removesuffix("_interval") in measurement.values}
    stored = {name for name, rule in measurement.pooling.items() if rule[0] in ("sum", "concatenate", "constant")}
    return {*measurement.errors.values(), *(name for name in intervals if name.endswith("_interval")), *stored}


def standard_error(stack: np.ndarray) -> np.ndarray:
    """s / √R of the finite numbers along the first axis, with R − 1 in s²; NaN for fewer than two.

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
    """The ratio of the widths of Student's 95 % interval for this number of repeats and the normal one.

    >>> round(student_factor(3), 3)  # 4.303 / 1.96
    2.195
    """
    return student_quantile(0.975, repeats - 1) / NORMAL if repeats > 1 else 1.0


def _runs(repeats: Sequence[Measurement]) -> list[list[Measurement]]:
    """Group repeats by seed: those of one seed on different images are parts of one run, in the order of the parts.

    Parts of the same images by another number of parts, or of more images of the set, may overlap: they are other runs.
    """
    by_seed: dict[tuple[str, ...], list[Measurement]] = {}
    for repeat in repeats:
        data, selection, _, parts = chosen(repeat)
        by_seed.setdefault((*repeat_of(repeat)[:-2], data, selection, parts), []).append(repeat)
    runs: list[list[Measurement]] = []
    for run in by_seed.values():
        if len({_part(repeat) for repeat in run}) == len(run):
            runs.append(sorted(run, key=_part_order))
        else:  # they are not known to be parts
            runs += [[repeat] for repeat in run]
    return runs


def _part(measurement: Measurement) -> tuple[str, ...]:
    """Returns which part of the images was measured; measurements that agree in it may be of the same images."""
    known = chosen(measurement)
    return (known.part,) if known.data else repeat_of(measurement)[-2:]


def _part_order(measurement: Measurement) -> tuple[float, str]:
    part = measurement.provenance.get("part")
    first = part[0] if isinstance(part, list) and part else math.inf
    return float(first) if isinstance(first, (int, float)) else math.inf, str(measurement.provenance.get("data", ""))


def _units(
    runs: Sequence[Sequence[Measurement]],
) -> tuple[list[Measurement], list[str], Over, tuple[Measurement, ...]]:
    """Returns the units of the errors, their keys and kind, and the measurement without each unit.

    Units are runs; for one run images or groups of images if numbers per image are stored, else parts.
    """
    if len(runs) > 1:
        pooled = [pool(run) for run in runs]
        return pooled, [""] * len(runs), "runs", _runs_without_one(pooled)
    run = runs[0]
    images = [str(part.provenance.get("data") or "") for part in run]
    groups, rest = split(pool(run))
    if not groups:
        named = zip(run, images, strict=True)
        keys = [f"{part.provenance.get('part')} {data}" if data else "" for part, data in named]
        return list(run), keys, "parts", leave_one_out(run)
    every = "; ".join(images) if all(images) else ""
    counts = [group.provenance.get("images") for group in groups]
    keys = [f"{every}, group {i} of {len(groups)}, {count} images" for i, count in enumerate(counts)]
    return groups, keys if every else [""] * len(groups), "images", rest


def _mean_of_runs(runs: Sequence[Measurement]) -> Measurement:
    values = {name: mean(np.stack([run.values[name] for run in runs])) for name in runs[0].values}
    return replace(runs[0], values=values)


def _runs_without_one(runs: Sequence[Measurement]) -> tuple[Measurement, ...]:
    return tuple(_mean_of_runs([run for j, run in enumerate(runs) if j != i]) for i in range(len(runs)))


def _without_zero_errors(measurement: Measurement) -> Measurement:
    """Replace errors of 0 that the mean of outcomes has if these are equal on all images, such as correct or not.

    The new error is that of the exact bound: if none of 32 images is misclassified, up to 10.9 % of others may be.
    """
    values = dict(measurement.values)
    for name, error in measurement.errors.items():
        rule, *given = measurement.pooling.get(name, ("mean",))
        if rule != "mean_of" or given[0] not in _OUTCOMES or error not in values:
            continue
        arrays = [values.get(each, np.empty(0)) for each in given[1:]]
        if all(array.size and np.isin(array, (0, 1)).all() for array in arrays):
            own = np.asarray(values[error], dtype=float)
            values[error] = np.where(own == 0, none_bound(arrays[0].shape[-1]) / NORMAL, own)
    return replace(measurement, values=values)


#: Functions of `core/formulas.py` whose numbers are shares, or differences of shares, if those given are 0 or 1.
_OUTCOMES = ("each", "drop", "wrong", "over_conditions")


def _with_errors(combined: Combined, factor: float, *, show: bool = True) -> Combined:
    """Add an error over units, multiplied by a factor, for each value that varies between the units.

    With `show` False, errors that are larger than those of the instrument become NaN.
    """
    values, dims, errors = dict(combined.values), dict(combined.dims), dict(combined.errors)
    skipped = auxiliary(combined)
    for name in combined.values:
        if name in skipped:
            continue
        over_units = _error_over_units(combined, name)
        if over_units is None:
            continue
        error = errors.get(name) or _free_name(name, values)
        own = np.asarray(values.get(error, np.nan), dtype=float)
        if combined.over == "images":  # both are over the same images; that of the instrument is exact
            values[error] = np.where(np.isfinite(own), own, factor * over_units)
        elif show:
            values[error] = np.fmax(own, factor * over_units)
        else:
            values[error] = np.where(own >= factor * over_units, own, np.nan)
        dims[error], errors[name] = combined.dims.get(name, ()), error
    return replace(combined, values=values, dims=dims, errors=errors)


def _error_over_units(combined: Combined, name: str) -> np.ndarray | None:
    """Returns the error of one value; None if the value is the same in all units."""
    direct = combined.over == "runs" or combined.pooling.get(name, ("mean",))[0] == "mean"
    if direct:
        stack = np.stack([unit.values[name] for unit in combined.units])
        return standard_error(stack) if varies(stack) else None
    stack = np.stack([rest.values[name] for rest in combined.without])
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
    """Raise an error if `other` is not a repeat of `first`."""
    what = f"{first.kind} of {first.subject!r}"
    if (first.kind, first.subject) != (other.kind, other.subject):
        raise VitlabError(
            f"{what} and {other.kind} of {other.subject!r} are not repeats; average those of one kind and model"
        )
    weights = [digest_of(each) for each in (first, other)]
    if weights[0] != weights[1]:
        raise VitlabError(f"{what} was measured with weights {weights[0]} and {weights[1]}; average those of one model")
    own, others = conditions(first), conditions(other)
    for key in {**own, **others}:
        if own.get(key) != others.get(key):
            given = f"{own.get(key)!r} and {others.get(key)!r}"
            raise VitlabError(f"repeats of {what} differ in {key}: {given}; average those with the same settings")
    if first.values.keys() != other.values.keys():
        odd = ", ".join(sorted(first.values.keys() ^ other.values.keys()))
        raise VitlabError(
            f"repeats of {what} do not have the same values ({odd} only in some); measure them with one version"
        )
    for name in first.values:
        shapes = _shape(first, name), _shape(other, name)
        if shapes[0] != shapes[1] or first.dims.get(name) != other.dims.get(name):
            raise VitlabError(
                f"repeats of {what} differ in the shape of {name}: {shapes[0]} and {shapes[1]}; "
                "measure them with the same settings"
            )


def digest_of(measurement: Measurement) -> str:
    """Returns the digest of the measured weights; empty if unknown."""
    model = measurement.provenance.get("model")
    return str(model.get("weights") or "") if isinstance(model, dict) else ""


def _shape(measurement: Measurement, name: str) -> tuple[int, ...]:
    """Returns the shape of a value without the axis along which parts are concatenated."""
    rule = measurement.pooling.get(name, ("mean",))
    joined = rule[1] if rule[0] == "concatenate" else None
    sides = zip(measurement.dims.get(name, ()), measurement.values[name].shape, strict=True)
    return tuple(side for axis, side in sides if axis != joined)


def _merge(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge settings or provenance of repeats: entries that are equal in all of them stay, others become lists."""
    merged: dict[str, Any] = {}
    for key in dict.fromkeys(key for entry in entries for key in entry):
        values = [entry.get(key) for entry in entries]
        merged[key] = values[0] if all(value == values[0] for value in values) else values
    return merged
