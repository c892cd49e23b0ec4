"""Verdicts: whether a published claim holds in repeated runs, with one rule for all experiments.

An effect is positive in the direction of the claim. The smallest relevant effect is fixed before the runs, by default
half of the published effect; it is 0 if only the sign is claimed.

    holds                           the 95 % interval of the effect lies above 0
    does not hold                   the interval lies below the smallest relevant effect
    holds, smaller than published   both
    inconclusive                    neither
    not run                         no result
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from vitlab.core.errors import VitlabError
from vitlab.core.statistics import mean_interval

__all__ = ["OUTCOMES", "Outcome", "Verdict", "judge", "verdict"]

Outcome = Literal["holds", "holds, smaller than published", "does not hold", "inconclusive", "not run"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True)
class Verdict:
    """A claim, its published and measured effect, and the outcome.

    Args:
        claim: one sentence.
        paper_value: the published effect; None if the paper gives only the sign.
        our_value: the mean effect over the runs; None without runs.
        interval: its 95 % interval; infinite for a single run, None without runs.
        smallest_relevant: the smallest relevant effect.
        outcome: one of `OUTCOMES`.
        why: the explanation of the outcome.
    """

    claim: str
    paper_value: float | None
    our_value: float | None
    interval: tuple[float, float] | None
    smallest_relevant: float
    outcome: Outcome
    why: str


def judge(interval: tuple[float, float] | None, smallest_relevant: float) -> Outcome:
    """Returns the outcome for the 95 % interval of an effect; None for no runs.

    >>> judge((0.1, 0.9), 0.6), judge((0.1, 0.5), 0.6), judge((-0.1, 0.5), 0.6), judge((-0.1, 0.9), 0.6)
    ('holds', 'holds, smaller than published', 'does not hold', 'inconclusive')
    """
    if not (math.isfinite(smallest_relevant) and smallest_relevant >= 0):
        raise VitlabError(f"invalid smallest relevant effect {smallest_relevant}; expected 0 or a positive number")
    if interval is None:
        return "not run"
    low, high = interval
    if not low <= high:
        raise VitlabError(f"invalid interval from {low} to {high}; expected the lower bound first, and no NaN")
    if low > 0:
        return "holds, smaller than published" if high < smallest_relevant else "holds"
    return "does not hold" if high < smallest_relevant else "inconclusive"


def verdict(
    claim: str, effects: Sequence[float], paper_value: float | None, smallest_relevant: float | None = None
) -> Verdict:
    """Returns the verdict on a claim from one effect per pair of runs.

    Args:
        claim: one sentence.
        effects: paired differences, positive in the direction of the claim; empty if nothing was run.
        paper_value: the published effect, or None if the claim is about the sign only.
        smallest_relevant: by default half of `paper_value`, or 0 without one.

    >>> result = verdict("the part raises accuracy", [0.8, 1.0, 0.9], paper_value=1.2)
    >>> result.outcome, result.smallest_relevant, result.why
    ('holds', 0.6, '95 % interval 0.652 to 1.15: above 0, not below 0.6')
    """
    least = smallest_relevant if smallest_relevant is not None else (paper_value or 0.0) / 2
    if not len(effects):
        return Verdict(claim, paper_value, None, None, least, judge(None, least), "no runs yet")
    mean, low, high = mean_interval(effects)
    outcome = judge((low, high), least)
    above = "above 0" if low > 0 else "not above 0"
    below = f"below {least:.3g}" if high < least else f"not below {least:.3g}"
    why = f"95 % interval {low:.3g} to {high:.3g}: {above}, {below}"
    return Verdict(claim, paper_value, mean, (low, high), least, outcome, why)
