"""Pool measurements on parts of the images into one on all images, and compute leave-one-out combinations.

`Measurement.pooling` declares a rule for each value:

    ("mean",)                   the mean over parts, weighted by their number of images; the default
    ("sum",)                    counts and sums are added
    ("concatenate", axis)       one number per image or mini-batch: parts are concatenated along this axis
    ("constant",)               the same in all parts, such as edges of bins
    ("examples",)               pictures for reports, which are left out of combined measurements
    ("mean_of", f, values…)     the mean over images of a function of stored values (`formulas.BY_IMAGE`)
    ("error_of", f, values…)    its standard error
    (formula, values…)          computed from the combined values (`formulas.FORMULAS`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from vitlab.core import formulas
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.measurement import Measurement

Rule = tuple[str, ...]

#: Rules that combine a value with itself; the others compute it from other values.
DIRECT = ("mean", "sum", "concatenate", "constant", "examples")

#: Up to this number of images each is a unit of a jackknife; more images are split into this number of groups.
SINGLE, GROUPS = 512, 64


def derive(stored: Mapping[str, np.ndarray], pooling: Mapping[str, Rule]) -> dict[str, np.ndarray]:
    """Returns the stored values, followed by those that the rules compute from them.

    Args:
        stored: arrays by name.
        pooling: rules; a rule may use values computed by earlier rules.

    >>> found = derive({"correct": np.array([1, 1, 0, 0])}, {"accuracy": ("mean_of", "each", "correct")})
    >>> float(found["accuracy"])
    0.5
    """
    values = {name: np.asarray(value) for name, value in stored.items()}
    for name, (rule, *given) in pooling.items():
        if rule in DIRECT:
            continue
        if rule in ("mean_of", "error_of"):
            function, *given = given
            arrays = [values[each] for each in given]
            values[name] = getattr(formulas, rule)(function, *arrays)
        elif rule in formulas.FORMULAS:
            values[name] = formulas.FORMULAS[rule](*(values[each] for each in given))
        else:
            raise unknown("pooling rule", rule, [*DIRECT, "mean_of", "error_of", *formulas.FORMULAS])
    return values


def pool(parts: Sequence[Measurement]) -> Measurement:
    """Pool measurements of one kind and model on parts of the images into one on all images.

    A standard error without a rule is pooled as that of a mean over parts, √(Σ e²) / R.

    >>> part = [Measurement("k", "a", {"x": np.array(x)}, {"x": ()}, provenance={"images": n})
    ...     for x, n in ((1.0, 10), (4.0, 20))]
    >>> float(pool(part).values["x"])
    3.0
    """
    parts = [without_examples(part) for part in parts]
    first = parts[0]
    if len(parts) == 1:
        return first
    weights = _weights(parts)
    own = {error for name, error in first.errors.items() if error not in first.pooling}
    stored = {}
    for name in first.values:
        rule = first.pooling.get(name, ("mean",))
        stack = [part.values[name] for part in parts]
        if name in own:
            stored[name] = np.sqrt(sum(each.astype(float) ** 2 for each in stack)) / len(parts)
        elif rule[0] in DIRECT:
            stored[name] = _combined(first, name, rule, stack, weights)
    values = {name: array for name, array in derive(stored, first.pooling).items() if name in first.values}
    joined = {rule[1] for rule in first.pooling.values() if rule[0] == "concatenate"}
    axes = {name: labels for name, labels in first.axes.items() if name not in joined}
    counts = [part.provenance.get("images") for part in parts]
    known = [count for count in counts if isinstance(count, int)]
    images = {"images": sum(known)} if len(known) == len(parts) else {}
    about = {**first.provenance, **images}
    return replace(first, values={name: values[name] for name in first.values}, axes=axes, provenance=about)


def without_examples(measurement: Measurement) -> Measurement:
    """Returns the measurement without its examples."""
    return _without(measurement, {name for name, rule in measurement.pooling.items() if rule[0] == "examples"})


def leave_one_out(parts: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Returns the measurement without each part, for a jackknife; numbers per image are omitted to save memory."""
    return tuple(
        _summary(pool([part for j, part in enumerate(parts) if j != i])) for i in range(len(parts) if parts[1:] else 0)
    )


def split(measurement: Measurement) -> tuple[list[Measurement], tuple[Measurement, ...]]:
    """Split a measurement that stores a number per image (or mini-batch) into measurements on groups of these.

    A group is one image if there are at most `SINGLE`. Otherwise every `GROUPS`-th image is in the same group, so that
    images sorted by class are spread over all groups.

    Returns:
        The groups, and the measurement without each group, for a jackknife; both are empty if a value cannot be
        computed from the stored ones, or if there is only one image.
    """
    measurement = without_examples(measurement)
    rules = measurement.pooling
    axes = {rule[1] for rule in rules.values() if rule[0] == "concatenate"}
    skipped = {*measurement.errors.values(), *(name for name in measurement.values if name.endswith("_interval"))}
    per_part = [name for name in measurement.values if name not in skipped and rules.get(name, _MEAN)[0] in _PER_PART]
    if len(axes) != 1 or per_part:
        return [], ()
    (axis,) = axes
    raw = {name: value for name, value in measurement.values.items() if rules.get(name, _MEAN)[0] == "concatenate"}
    count = {value.shape[measurement.dims[name].index(axis)] for name, value in raw.items()}
    if len(count) != 1 or (total := count.pop()) < 2:
        return [], ()
    size = total if total <= SINGLE else GROUPS
    each, every = [np.arange(start, total, size) for start in range(size)], np.arange(total)
    rest = tuple(_summary(_group(measurement, axis, np.delete(every, indices))) for indices in each)
    return [_group(measurement, axis, indices) for indices in each], rest


_MEAN: Rule = ("mean",)
_PER_PART = ("mean", "sum")


def _group(measurement: Measurement, axis: str, indices: np.ndarray) -> Measurement:
    """Returns the measurement on the images with these indices."""
    rules = measurement.pooling
    stored = {}
    for name, value in measurement.values.items():
        rule = rules.get(name, _MEAN)[0]
        if rule == "concatenate":
            stored[name] = np.take(value, indices, measurement.dims[name].index(axis))
        elif rule == "constant":
            stored[name] = value
    values = derive(stored, rules)
    return replace(
        measurement,
        values=values,
        dims={name: measurement.dims[name] for name in values},
        axes={name: labels for name, labels in measurement.axes.items() if name != axis},
        errors={name: error for name, error in measurement.errors.items() if error in values},
        provenance={**measurement.provenance, "images": len(indices)},
    )


def _combined(
    first: Measurement, name: str, rule: Rule, stack: Sequence[np.ndarray], weights: np.ndarray
) -> np.ndarray:
    if rule[0] == "concatenate":
        if rule[1] not in first.dims[name]:
            raise VitlabError(f"{name!r} of {first.kind} is pooled along {rule[1]!r}, which is not one of its axes")
        return np.concatenate(stack, first.dims[name].index(rule[1]))
    if rule[0] == "sum":
        return np.asarray(np.sum(stack, axis=0))
    return mean(np.stack(stack), weights)


def mean(stack: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The mean of the finite numbers along the first axis; values that do not vary, including text, are unchanged.

    >>> mean(np.array([[1.0, np.nan], [3.0, 5.0]])).tolist()
    [2.0, 5.0]
    """
    if not varies(stack):
        return np.asarray(stack[0])
    known = np.isfinite(stack)
    weights = np.ones(len(stack)) if weights is None else weights
    weight = np.where(known, weights.reshape(-1, *[1] * (stack.ndim - 1)), 0.0)
    total = weight.sum(0)
    result: np.ndarray = (weight * np.where(known, stack, 0.0)).sum(0) / np.where(total, total, 1)
    return np.where(total > 0, result, np.nan)


def varies(stack: np.ndarray) -> bool:
    """Whether numbers or booleans differ between parts."""
    numeric = np.issubdtype(stack.dtype, np.number) or stack.dtype == bool
    return bool(numeric) and not all(np.array_equal(stack[0], other, equal_nan=True) for other in stack[1:])


def _weights(parts: Sequence[Measurement]) -> np.ndarray:
    """Returns the number of images of each part; ones if unknown."""
    counts = [part.provenance.get("images") for part in parts]
    known = all(isinstance(count, (int, float)) and count > 0 for count in counts)
    return np.array(counts, dtype=float) if known else np.ones(len(parts))


def _summary(measurement: Measurement) -> Measurement:
    """Returns the measurement without numbers per image."""
    raw = {name for name, rule in measurement.pooling.items() if rule[0] == "concatenate" and rule[1] == "image"}
    return _without(measurement, raw)


def _without(measurement: Measurement, names: set[str]) -> Measurement:
    if not names:
        return measurement
    keep = [name for name in measurement.values if name not in names]
    return replace(
        measurement,
        values={name: measurement.values[name] for name in keep},
        dims={name: measurement.dims.get(name, ()) for name in keep},
        pooling={name: rule for name, rule in measurement.pooling.items() if name not in names},
    )
