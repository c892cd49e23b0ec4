"""The usual kinds of claims of CB's tables and figures, each with the function that judges it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vitlab.core.experiment import Claim, Published, Results, exact, judged, paired, values_of
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict

Value = str | Callable[[Measurement], float]


def table(columns: Sequence[str], rows: Mapping[str, Sequence[float | None]], runs: bool = True) -> list[Published]:
    """Returns the numbers of a table, given by row."""
    return [
        Published(row, column, value, runs)
        for row, values in rows.items()
        for column, value in zip(columns, values, strict=True)
    ]


@dataclass(frozen=True)
class Check:
    """A claim and the function that judges it."""

    claim: Claim
    verdict: Callable[[Results], Verdict]


def claims_of(checks: Sequence[Check]) -> list[Claim]:
    """Returns the claims, in order."""
    return [each.claim for each in checks]


def verdicts_of(checks: Sequence[Check], results: Results) -> list[Verdict]:
    """Returns the verdicts, in order."""
    return [each.verdict(results) for each in checks]


def effect(claim: Claim, effects: Callable[[Results], Sequence[float]]) -> Check:
    """Returns the check of a statistical claim, given its effects."""
    return Check(claim, lambda results: judged(claim, effects(results)))


def gain(
    claim: Claim, first: str, second: str, value: Value = "top1", kind: str = "training", unit: str = "points"
) -> Check:
    """Returns the check of the claim that a value is higher in the second arm, paired by seed."""
    return effect(
        replace(claim, unit=unit),
        lambda results: paired(results.by_seed(first, kind, value), results.by_seed(second, kind, value)),
    )


def count(claim: Claim, ours: Callable[[Results], float | None], tolerance: float = 0.0) -> Check:
    """Returns the check of a deterministic claim, given our number; None if it was not computed."""
    return Check(claim, lambda results: exact(claim, ours(results), tolerance))


def holds(claim: Claim, true: Callable[[Results], bool | None]) -> Check:
    """Returns the check of a deterministic claim without a number; None if it was not computed."""

    def ours(results: Results) -> float | None:
        answer = true(results)
        return None if answer is None else float(answer)

    return count(claim, ours)


def one(results: Results, arm: str, kind: str, value: Value) -> float | None:
    """Returns a number of an arm with a single job; None if the job was not run."""
    return next(iter(results.by_seed(arm, kind, value).values()), None)


def difference(results: Results, first: str, second: str, value: str) -> float | None:
    """Returns the count of the second arm minus that of the first; None if one of them is missing."""
    counts = [one(results, arm, "sizes", value) for arm in (first, second)]
    return None if counts[0] is None or counts[1] is None else counts[1] - counts[0]


def points(name: str, **labels: Any) -> Callable[[Measurement], float]:
    """Returns the function that reads an accuracy in per cent, with labels along its axes."""
    return lambda found: 100 * float(values_of(found, name, **labels))


def by_part(claim: Claim, arm: str, kind: str, value: Callable[[Measurement], float]) -> Check:
    """Returns the check of a claim about one model: one effect per part of the images."""
    return effect(claim, lambda results: list(results.by_part(arm, kind, value).values()))


def measured(results: Results, arm: str, kind: str) -> Measurement | None:
    """Returns the measurement of an arm with a single job; None if it was not run."""
    return next((found for _, found in results.select(arm, kind)), None)


#: Columns of the tables: the procedure that measures them, and how its number is read. ImageNet-V2 has three sets and
#: the paper does not say which one it uses: all are measured, `matched-frequency` is judged (DeiT's numbers for it are
#: close to the paper's baselines). ε of FGSM is not published: 1/255 is our choice.
COLUMNS: dict[str, tuple[str, Value]] = {
    "Acc@1": ("training", "top1"),
    "Acc@5": ("training", "top5"),
    "IN-V2": ("imagenet_v2", points("accuracy", set="matched-frequency")),
    "IN-ReaL": ("imagenet_real", points("accuracy")),
    "Occ": ("occlusion(ratios=())", points("accuracy", mask="centre 0.5")),
    "ImageNet-A": ("imagenet_a", points("accuracy_200")),
    "FGSM": ("adversarial(attacks='fgsm')", points("accuracy", attack="fgsm", epsilon=1.0)),
}


def raises(
    column: str, first: tuple[str, float], second: tuple[str, float], title: str, source: str, network: str
) -> Check:
    """Returns the check of the claim that a module raises a column of a table.

    Args:
        column: a key of `COLUMNS`.
        first, second: the arms without and with the module, each with its number in the table.
        title: the name of the module.
        source: the table.
        network: the name of the network.
    """
    procedure, value = COLUMNS[column]
    paper = round(second[1] - first[1], 2)
    claim = Claim(f"{second[0]}: {column}", f"{title} raises {column} of {network}", paper=paper, source=source)
    return gain(claim, first[0], second[0], value, procedure.partition("(")[0])
