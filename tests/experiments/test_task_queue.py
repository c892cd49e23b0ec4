"""Tasks are taken in order, after what they need; an interrupted plan has all results of the first seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.small import DATA, ENTROPY, SHORT, TRAINED, VIT
from vitlab.core.experiment import Job
from vitlab.experiments.runner import Task
from vitlab.experiments.task_queue import Queue, in_order
from vitlab.experiments.work import Training, Work, all_work, work_of

KINDS = ("training", "calibration", "sizes")


def tasks_of(jobs: list[Job]) -> list[Task]:
    runs, works = all_work(jobs)
    return [Task(work, Path("out")) for work in in_order(works, runs)]


def label(task: Task) -> str:
    kind = "run" if isinstance(task.work, Training) else task.work.job.procedure
    return f"{kind} {task.work.seed if isinstance(task.work, Training) else task.work.job.seed}"


def test_results_are_complete_seed_by_seed() -> None:
    jobs = [replace(TRAINED, procedure=what, seed=seed) for what in ("training", "calibration") for seed in (1, 0)]
    assert [label(task) for task in tasks_of([*jobs, ENTROPY])] == [
        *("run 0", "training 0", "calibration 0", "attention_entropy 0"),
        *("run 1", "training 1", "calibration 1"),
    ]


def test_a_finished_run_is_not_trained_again() -> None:
    _, works = all_work([TRAINED])
    assert in_order(works, []) == works


def test_tasks_wait_for_their_runs() -> None:
    run, *measured = tasks_of([TRAINED, replace(TRAINED, procedure="calibration")])
    other = Task(work_of(ENTROPY), Path("out"))
    queue = Queue([run, *measured, other])
    assert queue.take() == run and queue.take() == other and queue.take() is None
    assert list(queue.finish(other, "no memory")) == [(other, "no memory")]
    assert list(queue.finish(run, "")) == [(run, "")]
    assert list(queue.take_all()) == measured and not queue


def test_tasks_of_a_failed_run_fail() -> None:
    model = f"model={VIT[:-1]}, weights='{{trained}}')"
    second = replace(TRAINED, arm="second", changes=(*SHORT[:2], model, f"data={DATA}"), trained="quick")
    tasks = tasks_of([second, ENTROPY])
    queue = Queue(tasks)
    first = queue.take()
    assert first is not None and first.work == Training("quick") and len(queue) == 3
    failed = dict(queue.finish(first, "no disk"))
    assert failed.pop(first) == "no disk" and list(queue.take_all()) == tasks[-1:]
    assert set(failed.values()) == {"its training failed: no disk"} and len(failed) == 2


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(KINDS)), min_size=1), st.data())
def test_every_task_is_taken_once_and_after_its_runs(pairs: list[tuple[int, str]], data: st.DataObject) -> None:
    tasks = tasks_of([replace(TRAINED, procedure=what, seed=seed) for seed, what in pairs])
    queue, running, done = Queue(tasks), [], []
    while queue or running:
        running += queue.take_all()
        task = running.pop(data.draw(st.integers(0, len(running) - 1)))
        assert set(task.needs) <= {each.key for each in done}
        done += [each for each, _ in queue.finish(task, "")]
    assert sorted(task.key for task in done) == sorted(task.key for task in tasks)
    measured = [task.work for task in done if isinstance(task.work, Work)]
    assert len({work.key() for work in measured}) == len(measured) == len({(s, w) for s, w in pairs})


@pytest.mark.parametrize("count", [1, 5])
def test_the_queue_counts_waiting_tasks(count: int) -> None:
    queue = Queue([Task(work_of(replace(ENTROPY, seed=seed)), Path("out"), "", "cpu") for seed in range(count)])
    assert len(queue) == count and queue.device == "cpu" and queue.out == Path("out")
    queue.take()
    assert len(queue) == count - 1
