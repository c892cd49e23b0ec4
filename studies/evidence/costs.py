"""GPU minutes of finished runs, and estimates for missing ones."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from evidence.conditions import Job, all_jobs, recipe_of

__all__ = ["expected_minutes", "minutes", "missing_jobs"]


def minutes(run: Mapping[str, Any]) -> float:
    """GPU minutes of a run: its seconds, divided by the processes that shared the device.

    >>> minutes({"seconds": {"training": 100, "measuring": 20}, "processes": 2})
    1.0
    """
    return float(sum(run["seconds"].values()) / run["processes"]) / 60


def missing_jobs(runs: Sequence[Mapping[str, Any]]) -> list[Job]:
    """Returns the missing runs of all conditions, in order of priority."""
    done = {(run["condition"], run["arm"], run["seed"]) for run in runs}
    return [job for job in all_jobs() if (job.condition.name, job.arm.name, job.seed) not in done]


def expected_minutes(job: Job, runs: Sequence[Mapping[str, Any]]) -> float:
    """Estimate the GPU minutes of a run from the median seconds per epoch of its arm (else of all) and of measuring."""
    alike = [run for run in runs if run["arm"] == job.arm.name] or list(runs)
    epoch = statistics.median(run["seconds"]["training"] / run["epochs"] / run["processes"] for run in alike)
    measuring = statistics.median(run["seconds"]["measuring"] / run["processes"] for run in runs)
    return float(recipe_of(job).epochs * epoch + measuring) / 60
