"""The queue of tasks that engines take from: a task is ready when the training runs that it needs are finished."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vitlab.experiments.runner import Task
from vitlab.experiments.work import Training, Work

__all__ = ["Finished", "Queue", "in_order"]

#: A task and the reason of its failure; empty if it was successful.
Finished = tuple[Task, str]


class Queue:
    """Tasks in order of priority, and which of them are ready.

    Args:
        tasks: at least one; the most important first, each after the training runs that it needs.

    Attributes:
        device: the device of the tasks.
        out: their results folder.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._waiting = list(tasks)
        self.device, self.out = tasks[0].device, tasks[0].out
        self._unfinished = {task.key for task in tasks if isinstance(task.work, Training)}

    def __len__(self) -> int:
        """The number of waiting tasks."""
        return len(self._waiting)

    def take(self) -> Task | None:
        """Remove and return the first task that is ready; None if there is none."""
        for index, task in enumerate(self._waiting):
            if self._unfinished.isdisjoint(task.needs):
                return self._waiting.pop(index)
        return None

    def take_all(self) -> Iterator[Task]:
        """Remove and yield all tasks that are ready."""
        while (task := self.take()) is not None:
            yield task

    def finish(self, task: Task, reason: str) -> Iterator[Finished]:
        """Yield a finished task, and, if it failed, the tasks that can no longer run.

        Args:
            task: that was taken.
            reason: of its failure; empty if it was successful.
        """
        yield task, reason
        if not reason:
            self._unfinished.discard(task.key)
            return
        lost = [each for each in self._waiting if task.key in each.needs]
        self._waiting = [each for each in self._waiting if each not in lost]
        yield from ((each, f"its training failed: {reason}") for each in lost)


def in_order(works: Sequence[Work], trainings: Sequence[Training], root: str = "") -> list[Training | Work]:
    """Sort measurements and the training runs that they need by seed, then by run, each run before its measurements.

    An interrupted plan therefore has all results of the first seeds, which can be compared in pairs.

    Args:
        works: the missing measurements.
        trainings: the missing training runs.
        root: the folder of the data sets.
    """
    missing = {run.key(root) for run in trainings}
    place = {key: index for index, key in enumerate(dict.fromkeys(_run_key(work, root) for work in works))}
    order: dict[str, Training | Work] = {}
    for work in sorted(works, key=lambda work: (work.job.seed, place[_run_key(work, root)])):
        order |= {run.key(root): run for run in work.needs if run.key(root) in missing}
        order[work.key(root)] = work
    return list(order.values())


def _run_key(work: Work, root: str) -> str:
    """The key of the training run that a measurement needs; empty if it needs none."""
    return work.needs[-1].key(root) if work.needs else ""
