"""Paired comparisons of arms over seeds, and the verdicts on the claims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evidence.claims import CLAIMS, Case, Claim, Term
from vitlab.core.statistics import holm, mean_interval, student_p
from vitlab.core.verdicts import Verdict, verdict

__all__ = ["LEAST_PAIRS", "Judged", "Runs", "by_arm", "effects", "judge_all"]

#: A verdict needs this many pairs; it was fixed before the runs.
LEAST_PAIRS = 5

#: Values by condition, arm and seed.
Runs = Mapping[tuple[str, str], Mapping[int, Mapping[str, Any]]]


@dataclass(frozen=True)
class Judged:
    """A case of a claim with its differences and its verdict.

    Args:
        claim, case: what was asked.
        differences: of the metric, one for each seed that all runs of the case have; not turned by the claim's sign.
        p: adjusted over all planned cases of the claim (Holm), where cases without two pairs have 1; None for these.
        verdict: on effects that are positive in the direction of the claim.
    """

    claim: Claim
    case: Case
    differences: tuple[float, ...]
    p: float | None
    verdict: Verdict

    @property
    def interval(self) -> tuple[float, float, float]:
        """Mean difference and its 95 % interval."""
        return mean_interval(self.differences)


def by_arm(data: Mapping[str, Any]) -> Runs:
    """The runs of a collected document, by condition and arm, and by seed."""
    found: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for run in data["runs"]:
        found.setdefault((run["condition"], run["arm"]), {})[run["seed"]] = run
    return found


def effects(runs: Runs, metric: str, terms: Sequence[Term]) -> dict[int, float]:
    """By seed, the weighted sum of a metric over the runs of some arms; seeds without all of them are skipped.

    >>> runs = {("a", "plain"): {1: {"values": {"x": 2.0}}}, ("a", "cb"): {1: {"values": {"x": 5.0}}}}
    >>> effects(runs, "x", ((1, "a", "cb"), (-1, "a", "plain")))
    {1: 3.0}
    """
    arms = [(weight, runs.get((condition, arm), {})) for weight, condition, arm in terms]
    seeds = [seed for seed in sorted(arms[0][1]) if all(metric in _values(arm, seed) for _, arm in arms)]
    return {seed: math.fsum(weight * arm[seed]["values"][metric] for weight, arm in arms) for seed in seeds}


def judge_all(runs: Runs, claims: Sequence[Claim] = CLAIMS) -> list[Judged]:
    """Every case of every claim, in order."""
    return [judged for claim in claims for judged in _judge(runs, claim)]


def _judge(runs: Runs, claim: Claim) -> list[Judged]:
    differences = [tuple(effects(runs, claim.metric, case.terms).values()) for case in claim.cases]
    adjusted = holm([student_p(values) if len(values) > 1 else 1.0 for values in differences])
    found = []
    for case, values, p in zip(claim.cases, differences, adjusted, strict=True):
        given = verdict(claim.text, [claim.sign * value for value in values], case.paper)
        if 0 < len(values) < LEAST_PAIRS:
            given = replace(given, outcome="inconclusive", why=f"{len(values)} of at least {LEAST_PAIRS} pairs")
        found.append(Judged(claim, case, values, p if len(values) > 1 else None, given))
    return found


def _values(arm: Mapping[int, Mapping[str, Any]], seed: int) -> Mapping[str, float]:
    return arm[seed]["values"] if seed in arm else {}
