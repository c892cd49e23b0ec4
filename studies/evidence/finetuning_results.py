"""The committed runs of the two fine-tuning experiments: metrics, means over seeds and paired differences to plain."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.core.errors import VitlabError
from vitlab.core.statistics import holm, mean_interval, paired_interval, student_p

__all__ = [
    "ARMS",
    "HEADLINES",
    "Comparison",
    "Metric",
    "Runs",
    "compare",
    "conditions",
    "headlines",
    "load",
    "mean_of",
    "signed",
    "values",
]

#: Names of the compared variants, plain first.
ARMS = {"plain": "plain", "cb_s": "CB_S", "tap": "TAP", "adl": "ADL"}
CIFAR, CAMVID = "deit_tiny_cifar100", "camvid_upernet"

Run = Mapping[str, Any]
Runs = Mapping[str, Mapping[str, Mapping[int, Run]]]  # experiment, arm, seed
Interval = tuple[float, float, float]


@dataclass(frozen=True)
class Metric:
    """A number of a run.

    Args:
        experiment: the folder of its runs.
        title: the name in tables, with its unit.
        value: computes it from a run.
        digits: after the decimal point, in tables.
    """

    experiment: str
    title: str
    value: Callable[[Run], float]
    digits: int = 2


@dataclass(frozen=True)
class Comparison:
    """A variant compared with plain, paired by seed.

    Args:
        metric, arm: what is compared.
        difference: mean difference with its 95 % interval.
        p: adjusted for all headline comparisons (Holm); None for the other tables.
    """

    metric: Metric
    arm: str
    difference: Interval
    p: float | None = None

    @property
    def word(self) -> str:
        """`clear` if the interval excludes 0, with a dagger if the adjusted p is above 0.05; else `unclear`."""
        _, low, high = self.difference
        if low <= 0 <= high:
            return "unclear"
        return "clear †" if self.p is not None and self.p > 0.05 else "clear"


#: The metrics of the first table and of the picture.
HEADLINES = (
    Metric(CIFAR, "top-1, %", lambda run: run["top1"]),
    Metric(CIFAR, "NLL", lambda run: run["nll"], 4),
    Metric(CIFAR, "top-1 under corruptions, %", lambda run: run["corrupted"]),
    Metric(CAMVID, "mIoU, %", lambda run: 100 * run["cityscapes_c"]["clean_miou"]),
    Metric(CAMVID, "pixel accuracy, %", lambda run: run["pixel_accuracy"]),
    Metric(CAMVID, "mIoU, perturbations of CB Table 9, %", lambda run: run["perturbed"]),
    Metric(CAMVID, "mIoU, Cityscapes-C, %", lambda run: run["corrupted"]),
)


def load(folder: Path) -> Runs:
    """Returns all runs below a folder, by experiment, arm and seed; runs that cannot be compared are refused."""
    found: dict[str, dict[str, dict[int, Run]]] = {}
    for experiment in (CIFAR, CAMVID):
        by_arm: dict[str, dict[int, Run]] = {arm: {} for arm in ARMS}
        for path in sorted((folder / experiment).glob("*.json")):
            run = json.loads(path.read_text(encoding="utf-8"))
            if path.stem != f"{run['arm']}-{run['seed']}" or run["arm"] not in ARMS:
                raise VitlabError(
                    f"{path} holds the run {run['arm']}-{run['seed']}; give files the names of their runs"
                )
            by_arm[run["arm"]][run["seed"]] = run
        _check(experiment, by_arm)
        found[experiment] = by_arm
    return found


def _check(experiment: str, runs: Mapping[str, Mapping[int, Run]]) -> None:
    """Raise if arms have other seeds, or if runs differ in data, schedule or measured conditions."""
    seeds = {arm: tuple(sorted(found)) for arm, found in runs.items()}
    if len(set(seeds.values())) != 1 or not seeds["plain"]:
        raise VitlabError(f"the arms of {experiment} have other seeds: {seeds}; differences are paired by seed")
    about = {_protocol(run) for found in runs.values() for run in found.values()}
    if len(about) != 1:
        raise VitlabError(f"runs of {experiment} differ in data, schedule or conditions: {sorted(about)}")


def _protocol(run: Run) -> str:
    """What all runs of an experiment share: data, conditions, and the recipe without model, seed, ADL and compile."""
    recipe = re.sub(r"model=(['\"]).*?\1, (?=data=)", "", run["recipe"])
    recipe = re.sub(r"(diversification|compile|seed)=[\w.]+", "", recipe)
    measured = [
        run[name]["settings"] for name in ("corruptions", "context_broadcasting", "cityscapes_c") if name in run
    ]
    return f"{recipe} {run['provenance']['data']} {json.dumps(measured)}"


def values(runs: Runs, metric: Metric, arm: str) -> list[float]:
    """Returns the metric of each run of an arm, by seed."""
    found = runs[metric.experiment][arm]
    return [metric.value(found[seed]) for seed in sorted(found)]


def mean_of(runs: Runs, metric: Metric, arm: str) -> Interval:
    """Returns the mean over seeds with its 95 % interval."""
    return mean_interval(values(runs, metric, arm))


def compare(runs: Runs, metrics: Sequence[Metric]) -> list[Comparison]:
    """Returns the paired differences to plain of every other arm, without adjusted p."""
    return [
        Comparison(metric, arm, paired_interval(values(runs, metric, "plain"), values(runs, metric, arm)))
        for metric in metrics
        for arm in ARMS
        if arm != "plain"
    ]


def headlines(runs: Runs) -> list[Comparison]:
    """Returns the comparisons of `HEADLINES`, with p adjusted over all of them."""
    found = compare(runs, HEADLINES)
    raw = []
    for each in found:
        plain, other = (values(runs, each.metric, arm) for arm in ("plain", each.arm))
        raw.append(student_p((np.asarray(other) - np.asarray(plain)).tolist()))
    pairs = zip(found, holm(raw), strict=True)
    return [Comparison(each.metric, each.arm, each.difference, p) for each, p in pairs]


def conditions(runs: Runs, experiment: str, suite: str, axis: str, name: str) -> list[Metric]:
    """Returns a metric, in per cent, for each label along an axis; several severities of a label are averaged."""
    first = next(iter(runs[experiment]["plain"].values()))
    labels = enumerate(first[suite]["axes"][axis])
    return [Metric(experiment, str(label), partial(_per_cent, suite, name, index)) for index, label in labels]


def _per_cent(suite: str, name: str, index: int, run: Run) -> float:
    return 100 * float(np.mean(run[suite][name][index]))


def signed(value: float, digits: int) -> str:
    """A number with its sign; 0 has none.

    >>> signed(-0.537, 2), signed(0.001, 2), signed(-0.001, 2)
    ('−0.54', '0.00', '0.00')
    """
    rounded = round(value, digits)
    return f"{rounded:+.{digits}f}".replace("-", "−") if rounded else f"{0:.{digits}f}"
