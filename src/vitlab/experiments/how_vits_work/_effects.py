"""Effects of an experiment: numbers of measurements, compared between arms and paired by run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vitlab.core.experiment import Claim, Results, exact, judged
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict

__all__ = [
    "Check",
    "Effect",
    "Reading",
    "Sum",
    "claims",
    "fact",
    "more",
    "own",
    "slope",
    "summed",
    "tested",
    "trend",
    "verdicts",
]

#: A run: its seed and the number of the part of the images, 1 where they are not split.
Run = tuple[int, int]


@dataclass(frozen=True)
class Reading:
    """A number of a measurement.

    Args:
        name: of the number, in the words of the paper where it has any.
        kinds: the procedures that measure it, without settings.
        value: reads it from a measurement.
        unit: of differences; empty for a number without a unit.
    """

    name: str
    kinds: tuple[str, ...]
    value: Callable[[Measurement], float]
    unit: str = ""

    def by_run(self, results: Results, arm: str) -> dict[Run, float]:
        """Returns the number of each run of an arm."""
        return {run: number for kind in self.kinds for run, number in results.by_part(arm, kind, self.value).items()}


@dataclass(frozen=True)
class Sum:
    """A weighted sum.

    Args:
        weights: one per value.
    """

    weights: tuple[float, ...]

    def __call__(self, values: Sequence[float]) -> float:
        """Returns the sum of the weighted values."""
        return sum(weight * value for weight, value in zip(self.weights, values, strict=True))


@dataclass(frozen=True)
class Effect:
    """A number for each run that has all its terms.

    Args:
        terms: readings, each of an arm.
        combine: a function of the readings of one run.
        unit: of the number.
    """

    terms: tuple[tuple[Reading, str], ...]
    combine: Callable[[Sequence[float]], float]
    unit: str = ""

    def __call__(self, results: Results) -> list[float]:
        """Returns the effects, ordered by run."""
        columns = [reading.by_run(results, arm) for reading, arm in self.terms]
        runs = sorted(set.intersection(*(set(column) for column in columns)))
        return [float(self.combine([column[run] for column in columns])) for run in runs]


@dataclass(frozen=True)
class Check:
    """A claim and the effect that decides on it.

    Args:
        claim: the claim.
        effect: positive if it agrees with the claim; our value of a deterministic claim.
        tolerance: of a deterministic claim, see `exact`.
    """

    claim: Claim
    effect: Effect
    tolerance: float = 0.0


def summed(*terms: tuple[float, Reading, str]) -> Effect:
    """The weighted sum of readings, each of an arm."""
    weights, readings, arms = zip(*terms, strict=True)
    return Effect(tuple(zip(readings, arms, strict=True)), Sum(weights), readings[0].unit)


def more(reading: Reading, arm: str, than: str) -> Effect:
    """The reading of an arm minus that of another."""
    return summed((1.0, reading, arm), (-1.0, reading, than))


def own(reading: Reading, arm: str, sign: float = 1.0) -> Effect:
    """The reading of an arm itself, or minus it."""
    return summed((sign, reading, arm))


def trend(reading: Reading, positions: Mapping[str, float], sign: float = 1.0, per: str = "") -> Effect:
    """The slope of a reading over the positions of arms, by least squares; or minus it. One position is a `per`.

    >>> trend(Reading("x", (), float), {"a": 0.0, "b": 2.0}).combine([1.0, 4.0])
    1.5
    """
    mean = sum(positions.values()) / len(positions)
    spread = sum((x - mean) ** 2 for x in positions.values())
    effect = summed(*((sign * (x - mean) / spread, reading, arm) for arm, x in positions.items()))
    return replace(effect, unit=f"{reading.unit} per {per}" if reading.unit else "")


def slope(y: Reading, x: Reading, arms: Sequence[str]) -> Effect:
    """The slope of a reading over another one, each arm a point, by least squares; NaN if all x are equal.

    >>> slope(Reading("y", (), float), Reading("x", (), float), ["a", "b"]).combine([0.0, 2.0, 1.0, 4.0])
    1.5
    """

    def combine(values: Sequence[float]) -> float:
        xs, ys = values[: len(arms)], values[len(arms) :]
        mean = sum(xs) / len(xs)
        spread = sum((each - mean) ** 2 for each in xs)
        product = sum((each - mean) * other for each, other in zip(xs, ys, strict=True))
        return product / spread if spread else math.nan

    unit = f"{y.unit} per {x.unit.removesuffix('s')}"
    return Effect((*((x, arm) for arm in arms), *((y, arm) for arm in arms)), combine, unit)


def tested(
    name: str,
    sentence: str,
    effect: Effect,
    source: str,
    *,
    paper: float | None = None,
    smallest: float | None = None,
) -> Check:
    """A statistical claim with its effect; the arguments are those of `Claim`."""
    return Check(Claim(name, sentence, paper, smallest, source=source, unit=effect.unit), effect)


def fact(
    name: str, sentence: str, effect: Effect, source: str, *, paper: float | None = None, tolerance: float = 0.0
) -> Check:
    """A deterministic claim with our value."""
    return Check(Claim(name, sentence, paper, deterministic=True, source=source), effect, tolerance)


def claims(checks: Sequence[Check]) -> list[Claim]:
    """The claims of an experiment."""
    return [check.claim for check in checks]


def verdicts(checks: Sequence[Check], results: Results) -> list[Verdict]:
    """Returns one verdict per claim."""
    return [_verdict(check, check.effect(results)) for check in checks]


def _verdict(check: Check, effects: Sequence[float]) -> Verdict:
    """Runs without a finite effect, such as the logarithm of no positive eigenvalue, are left out and counted."""
    if check.claim.deterministic:
        return exact(check.claim, effects[0] if effects else None, check.tolerance)
    finite = [effect for effect in effects if math.isfinite(effect)]
    found = judged(check.claim, finite)
    missing = len(effects) - len(finite)
    return replace(found, why=f"{found.why}; {missing} run(s) without a finite effect") if missing else found
