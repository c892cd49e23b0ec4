"""Claims with the functions that judge them: comparisons of variants, numbers of published weights, and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from vitlab.core.experiment import Claim, Results, exact, judged, paired
from vitlab.core.verdicts import Verdict
from vitlab.experiments.robust_token_attention._numbers import Number

#: Published numbers of evaluated weights: decoding and resizing of images differ between libraries. Our choice.
EVALUATION_TOLERANCE = 0.2
#: The printed parameters are truncated, not rounded (50.475 M as 50.4): one unit of the last digit.
PARAMETERS_TOLERANCE = 0.1
#: Counters differ in the operations that they count; the relative tolerance of `model_sizes`.
FLOPS_TOLERANCE = 0.02


@dataclass(frozen=True)
class Check:
    """A claim and the function that judges it."""

    claim: Claim
    judge: Callable[[Results], Verdict]


def better(claim: Claim, number: Number, first: str, second: str) -> Check:
    """The claim that the arm `second` has a better number than `first`, in runs of the same seed."""
    claim, sign = replace(claim, unit=number.unit), -1.0 if number.lower else 1.0

    def judge(results: Results) -> Verdict:
        return judged(claim, [sign * each for each in paired(number.of(results, first), number.of(results, second))])

    return Check(claim, judge)


def evaluated(name: str, sentence: str, number: Number, arm: str, printed: float, source: str) -> Check:
    """The claim that the published weights of an arm have the printed number."""
    claim = Claim(name, sentence, printed, None, True, source, "%")

    def judge(results: Results) -> Verdict:
        found = list(number.of(results, arm, published=True).values())
        return exact(claim, float(np.mean(found)) if found else None, EVALUATION_TOLERANCE)

    return Check(claim, judge)


def counted(arm: str, title: str, parameters: float, flops: float, source: str) -> list[Check]:
    """The claims on the number of parameters (in millions) and of multiply-accumulates (in 10⁹) of an arm."""
    printed = {"parameters": (1e6, parameters, PARAMETERS_TOLERANCE), "macs": (1e9, flops, FLOPS_TOLERANCE * flops)}
    claims = {
        "parameters": Claim(
            f"parameters_{arm}", f"{title} has {parameters} M parameters", parameters, None, True, source, "M"
        ),
        "macs": Claim(f"flops_{arm}", f"{title} takes {flops} G FLOPs, within 2 %", flops, None, True, source, "G"),
    }

    def judge(value: str, results: Results) -> Verdict:
        unit, _, tolerance = printed[value]
        found = [count / unit for count in results.by_seed(arm, "sizes", value).values()]
        return exact(claims[value], found[0] if found else None, tolerance)

    return [Check(claims[value], partial(judge, value)) for value in claims]


def gain(rows: Mapping[str, Sequence[float]], column: int, first: str, second: str, *, lower: bool) -> float:
    """Returns the published improvement of a row over another one, positive if better.

    >>> gain({"a": (46.1,), "b": (44.9,)}, 0, "a", "b", lower=True)
    1.2
    """
    difference = rows[second][column] - rows[first][column]
    return round(-difference if lower else difference, 2)
