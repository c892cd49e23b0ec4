"""Select the next run of a worker within the remaining time."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from evidence.conditions import Job

__all__ = ["Durations", "next_job"]

_COMPILATION = 60.0  # additional seconds of the first run of a variant
_AHEAD = 5  # a worker keeps a compiled variant until it is this many seeds ahead of another


@dataclass
class Durations:
    """Estimated duration of runs, from finished ones.

    Args:
        per_epoch: seconds of an epoch, as long as nothing is known.
        measuring: seconds of the measurements, likewise.
    """

    per_epoch: float
    measuring: float = 15.0
    known: dict[str, float] = field(default_factory=dict)

    def learn(self, job: Job, epochs: int, training: float, measuring: float, compiled: bool) -> None:
        """Add a finished run; `compiled` is whether its variant was compiled before."""
        spent = training if compiled else max(training - _COMPILATION, 0.5 * training)
        self.known[job.arm.name] = spent / epochs
        self.measuring = measuring

    def estimate(self, job: Job, epochs: int, compiled: bool) -> float:
        """Returns the estimated seconds of a run, with a margin of a tenth."""
        slowest = max(self.known.values(), default=self.per_epoch)
        expected = epochs * self.known.get(job.arm.name, slowest) + self.measuring
        return 1.1 * expected + (0.0 if compiled else _COMPILATION)


def variant(job: Job) -> tuple[object, ...]:
    """The key of a compilation: model and objective."""
    return job.condition.heads, job.arm.parts, *sorted(job.arm.settings.items())


def next_job(pending: Sequence[Job], compiled: Set[tuple[object, ...]]) -> Job | None:
    """Returns the next run of a worker: from the first unfinished condition, the lowest seed, compiled variants first.

    Args:
        pending: runs that have not started, in order of priority.
        compiled: variants that the worker has compiled.

    >>> from evidence.conditions import all_jobs
    >>> jobs = all_jobs(["centre"])
    >>> next_job(jobs[1:], {variant(jobs[0])}).name, next_job(jobs[1:], set()).name
    ('centre-plain-101', 'centre-cb-100')
    """
    if not pending:
        return None
    first = [job for job in pending if job.condition == pending[0].condition]
    seeds = pending[0].condition.seeds

    def cost(job: Job) -> int:
        return seeds.index(job.seed) + (0 if variant(job) in compiled else _AHEAD)

    return min(first, key=lambda job: (cost(job), variant(job) not in compiled))
