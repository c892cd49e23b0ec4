"""Synthetic measurements for the tests of `check`: results for which the effects on a claim are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vitlab.core.experiment import Claim, Job, Results
from vitlab.core.measurement import Measurement

#: The recipe of synthetic jobs that stand for trained models; `check` does not run it.
RECIPE = "quick"


def measured(kind: str, **values: object) -> Measurement:
    """A measurement with scalars and arrays; an axis of an array is named `axis0`, `axis1`, … .

    >>> float(measured("calibration", ece=0.1).values["ece"])
    0.1
    """
    arrays = {name: np.asarray(value) for name, value in values.items()}
    dims = {name: tuple(f"axis{axis}" for axis in range(array.ndim)) for name, array in arrays.items()}
    return Measurement(kind, "synthetic", arrays, dims)


def layered(kind: str, axes: Mapping[str, Sequence[object]], **values: tuple[Sequence[str], object]) -> Measurement:
    """A measurement with named axes: each value is a pair of its dims and its array.

    >>> layered("k", {"layer": ("a", "b")}, v=(("layer",), [1, 2])).axes
    {'layer': ('a', 'b')}
    """
    arrays = {name: np.asarray(array) for name, (_, array) in values.items()}
    dims = {name: tuple(names) for name, (names, _) in values.items()}
    return Measurement(kind, "synthetic", arrays, dims, {name: tuple(labels) for name, labels in axes.items()})


def curve(**finals: float) -> Measurement:
    """The measurement of a `training` job with these metrics in its last epoch, and 7 before."""
    rows = {name: (("epoch",), [7.0, 7.0, value]) for name, value in finals.items()}
    return layered("training", {"epoch": (1, 2, 3)}, **rows)


def entry(arm: str, measurement: Measurement, seed: int = 0, procedure: str = "", **fields: object) -> tuple:
    """A job of an arm with its measurement; the procedure is the kind of the measurement unless it is given."""
    given = {"recipe": RECIPE} if "model" not in fields else {}
    job = Job(arm, procedure or measurement.kind, seed=seed, **given, **fields)  # type: ignore[arg-type]
    return job, measurement


def pairs(
    kind: str, value: str, first: str, second: str, effects: Sequence[float], base: float = 0.0, sign: float = 1.0
) -> Results:
    """Results in which `value` of the arm `second` minus that of `first` is sign · effect, for one seed per effect.

    A value of `training` is by epoch, others are scalars.

    >>> found = pairs("calibration", "ece", "plain", "cb", [0.5])
    >>> found.by_seed("cb", "calibration", "ece")
    {0: 0.5}
    """
    make = curve if kind == "training" else lambda **values: measured(kind, **values)
    return Results(
        [
            entry(arm, make(**{value: base + (sign * effect if arm == second else 0.0)}), seed)
            for seed, effect in enumerate(effects)
            for arm in (first, second)
        ]
    )


def merged(*results: Results) -> Results:
    """All entries of several results."""
    return Results([entry for each in results for entry in each.entries])


def effects_of(claim: Claim) -> dict[str, list[float]]:
    """For each outcome that a claim must be able to have, effects that lead to it (one per seed).

    >>> effects_of(Claim("a", "b", paper=2.0))["does not hold"]
    [-2.02, -2.0, -1.98]
    """
    if claim.deterministic:
        published = 1.0 if claim.paper is None else claim.paper
        wrong = 0.0 if claim.paper is None else 2 * published + 10
        return {"holds": [published], "does not hold": [wrong]}
    least = claim.smallest if claim.smallest is not None else abs(claim.paper or 0.0) / 2
    size = max(2 * least, abs(claim.paper or 0.0)) or 1.0
    around = (-0.01 * size, 0.0, 0.01 * size)
    return {
        "holds": [round(size + each, 9) for each in around],
        "does not hold": [round(-size + each, 9) for each in around],
        "inconclusive": [-10 * size, 0.0, 10 * size],
    }
