"""The plan of some experiments at one scale: what must be run, what is stored, and the cost. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vitlab.core.errors import VitlabError
from vitlab.core.experiment import Job, Results, Scale
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.disk_estimate import written_by
from vitlab.experiments.work import Training, Work, all_work, clear_key_cache, work_of

__all__ = ["Cost", "Plan"]

#: Bytes of the files of a measurement, roughly.
_MEASUREMENT = 2e5


@dataclass(frozen=True)
class Cost:
    """What a plan needs.

    Args:
        runs: number of training runs.
        measurements: number of measurements.
        gpu_hours: estimated time on one GPU.
        gigabytes: estimated size of the data sets that are read.
        needs: files that must exist below the data root.
        written: estimated size in gigabytes of what is written to the results folder.
    """

    runs: int
    measurements: int
    gpu_hours: float
    gigabytes: float
    needs: tuple[str, ...]
    written: float = 0.0

    def __str__(self) -> str:
        data = f"up to {self.gigabytes:.3g} GB of data ({', '.join(self.needs)})" if self.needs else "no data sets"
        return (
            f"{self.runs} training runs, {self.measurements} measurements, about {self.gpu_hours:.3g} GPU hours, "
            f"about {self.written:.2g} GB written to disk, {data}"
        )


@dataclass(frozen=True)
class Plan:
    """The work of experiments at a scale.

    Args:
        experiments: to run.
        scale: of all of them.
        out: the results folder.
        root: the folder of the data sets; empty for none.
    """

    experiments: Sequence[Experiment]
    scale: Scale
    out: Path
    root: str = ""

    def __post_init__(self) -> None:
        """Compute keys from the files as they are now."""
        clear_key_cache()

    @cached_property
    def jobs(self) -> dict[str, list[Job]]:
        """The jobs of each experiment, by its name."""
        return {each.name: each.plan(self.scale) for each in self.experiments}

    @cached_property
    def problems(self) -> dict[str, dict[Job, str]]:
        """The jobs of each experiment that name an unknown recipe, setting or procedure, with the reason."""
        found: dict[str, dict[Job, str]] = {name: {} for name in self.jobs}
        for name, jobs in self.jobs.items():
            for job in jobs:
                try:
                    work_of(job).key(self.root)
                except VitlabError as error:
                    found[name][job] = " ".join(str(error).split())
        return found

    @cached_property
    def _work(self) -> tuple[list[Training], list[Work]]:
        valid = (job for name, jobs in self.jobs.items() for job in jobs if job not in self.problems[name])
        return all_work(valid, self.root)

    @property
    def trainings(self) -> list[Training]:
        """The training runs, each after those that it needs."""
        return self._work[0]

    @property
    def works(self) -> list[Work]:
        """The measurements, each once."""
        return self._work[1]

    @property
    def missing(self) -> list[Work]:
        """The measurements that are not stored."""
        return [work for work in self.works if not work.folder(self.out, self.root).is_dir()]

    @property
    def missing_trainings(self) -> list[Training]:
        """The training runs that missing measurements need and that are not finished."""
        needed = {run.key(self.root) for work in self.missing for run in work.needs}
        return [run for run in self.trainings if run.key(self.root) in needed and not run.done(self.out, self.root)]

    def cost(self, *, force: bool = False) -> Cost:
        """What is missing, or everything. A job's time includes its training, which all jobs of a run share.

        Args:
            force: whether stored runs and measurements are made again, and therefore count.
        """
        missing, runs = (self.works, self.trainings) if force else (self.missing, self.missing_trainings)
        minutes: dict[str, float] = {}
        sizes: dict[tuple[str, ...], float] = {}
        for work in missing:
            key = work.needs[-1].key(self.root) if work.needs else work.key(self.root)
            minutes[key] = max(minutes.get(key, 0.0), work.job.gpu_minutes)
            sizes[work.job.needs] = max(sizes.get(work.job.needs, 0.0), work.job.gigabytes)
        needs = tuple(sorted({need for names in sizes for need in names}))
        written = sum(written_by(run.recipe("trained", self.root or "{root}")) for run in runs)
        written += _MEASUREMENT * len(missing)
        hours = sum(minutes.values()) / 60
        return Cost(len(runs), len(missing), hours, sum(sizes.values()), needs, written / 1e9)

    def results(self, name: str) -> Results:
        """The stored measurements of an experiment; a job with a problem has none."""
        valid = (job for job in self.jobs[name] if job not in self.problems[name])
        return Results([(job, found) for job in valid for found in work_of(job).results(self.out, self.root)])
