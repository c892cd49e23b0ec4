"""Run experiments: train and measure what is missing, judge the claims, and write records and pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vitlab.core.experiment import Job, Results, Scale, not_run
from vitlab.core.expressions import parse_model
from vitlab.core.measurement import Measurement
from vitlab.core.out_folder import check_writable
from vitlab.core.verdicts import Verdict
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.engines import Engine, serial
from vitlab.experiments.pictures import write_picture
from vitlab.experiments.plan import Plan
from vitlab.experiments.record import judge, record_of, write_record
from vitlab.experiments.runner import Task
from vitlab.experiments.task_queue import Queue, in_order
from vitlab.experiments.work import work_of
from vitlab.progress import Bar
from vitlab.reporting.experiment_page import experiment_page

__all__ = ["Reproduced", "reproduce", "trained_networks"]


@dataclass(frozen=True)
class Reproduced:
    """An experiment after its jobs were run.

    Args:
        experiment: the experiment.
        verdicts: one per claim.
        failures: reasons of failed jobs by their titles.
        page: the page of the experiment.
    """

    experiment: Experiment
    verdicts: list[Verdict]
    failures: dict[str, str]
    page: Path


def reproduce(
    plan: Plan, *, device: str | None = None, engine: Engine = serial, force: bool = False, show: bool = True
) -> Iterator[Reproduced]:
    """Run what is missing of a plan, and judge its experiments. A failed job does not end the others.

    Args:
        plan: the experiments and the scale.
        device: `cpu`, `cuda` or `mps`; by default CUDA where available.
        engine: runs the tasks.
        force: whether to remove all results of the plan first, trained weights included.
        show: whether to show a progress bar.

    Yields:
        Each experiment, in the order of the plan.
    """
    check_writable(plan.out)
    if force:
        _remove(plan)
    reasons = _run(plan, device, engine, show)
    for experiment in plan.experiments:
        yield _judged(plan, experiment, reasons)


def _remove(plan: Plan) -> None:
    folders = [work.folder(plan.out, plan.root) for work in plan.works]
    folders += [plan.out / "unfinished" / folder.name for folder in folders]
    folders += [run.folder(plan.out, plan.root) for run in plan.trainings]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _run(plan: Plan, device: str | None, engine: Engine, show: bool) -> dict[str, str]:
    """Run what is missing; returns the reasons of failures by the keys of training runs and measurements."""
    order = in_order(plan.missing, plan.missing_trainings, plan.root)
    tasks = [Task(work, plan.out, plan.root, device) for work in order]
    with Bar(len(tasks), show=show) as bar:
        finished = engine(Queue(tasks), bar) if tasks else ()
        return {task.key: reason for task, reason in finished if reason}


def _judged(plan: Plan, experiment: Experiment, reasons: dict[str, str]) -> Reproduced:
    jobs = plan.jobs[experiment.name]
    results = plan.results(experiment.name)
    problems = plan.problems[experiment.name]
    keys = {_title(job): work_of(job).key(plan.root) for job in jobs if job not in problems}
    failures = {_title(job): problem for job, problem in problems.items()}
    failures |= {title: reasons[key] for title, key in keys.items() if key in reasons}
    try:
        verdicts = judge(experiment, results, plan.scale)
    except Exception as error:  # a mistake in one experiment must not end the others
        failures["check"] = f"{type(error).__name__}: {' '.join(str(error).split())}"
        verdicts = [not_run(claim, "check failed") for claim in experiment.claims]
    record = record_of(experiment, plan.scale, verdicts, results, failures, _trained(results, plan.scale))
    if record["numbers"]:  # a record without numbers is not a result, and must not replace one
        path = write_record(plan.out / "verdicts" / plan.scale / f"{experiment.name}.json", record)
        try:
            write_picture(path, experiment, record)
        except Exception as error:  # a mistake in one picture must not end the others
            failures["picture"] = f"{type(error).__name__}: {' '.join(str(error).split())}"
    page = experiment_page(
        plan.out / "report" / plan.scale / f"{experiment.name}.html",
        experiment.title,
        " ".join(
            [
                f"Scale {plan.scale}, jobs: {len(jobs)}. "
                f"Command: vitlab reproduce {experiment.name} --scale {plan.scale}.",
                *record["differences"],
            ]
        ),
        experiment.claims,
        verdicts,
        experiment.published,
        _with_seeds(results),
        [f"{title}: {reason}" for title, reason in failures.items()],
    )
    return Reproduced(experiment, verdicts, failures, page)


def _trained(results: Results, scale: Scale) -> list[str]:
    """What was trained; nothing at `smoke`, which judges no training."""
    return [] if scale == "smoke" else trained_networks(job for job, _ in results.entries)


def trained_networks(jobs: Iterable[Job]) -> list[str]:
    """Returns one sentence with the networks that jobs train, the data and the length; none if they train nothing.

    >>> trained_networks([Job("plain", "training", recipe="deit_imagenet"), Job("plain", "sizes", recipe="quick")])
    ['Trained on imagenet for 300 epochs: deit_tiny_patch16_224.']
    """
    found: dict[str, dict[str, None]] = {}
    for run in dict.fromkeys(run for job in jobs for run in work_of(job).needs):
        recipe = run.recipe("trained", "{root}")
        steps = recipe.epochs * recipe.steps_per_epoch
        how = f"on {recipe.data} for {f'{steps:,} iterations' if steps else f'{recipe.epochs} epochs'}"
        found.setdefault(how, {})[parse_model(recipe.model).name] = None
    sentences = [f"{how}: {', '.join(names)}" for how, names in found.items()]
    return [f"Trained {'; '.join(sentences)}."] if found else []


def _title(job: Job) -> str:
    return f"{job.procedure} of {job.arm}, seed {job.seed}"


def _with_seeds(results: Results) -> list[Measurement]:
    """The measurements, named after their arms, with the seed where an arm has several."""
    seeds: dict[str, set[int]] = {}
    for job, _ in results.entries:
        seeds.setdefault(job.arm, set()).add(job.seed)

    def name(job: Job) -> str:
        return f"{job.arm}, seed {job.seed}" if len(seeds[job.arm]) > 1 else job.arm

    return [replace(found, subject=name(job)) for job, found in results.entries]
