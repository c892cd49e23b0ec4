"""Engines that run tasks: one after another here, in several processes, with submitit (Slurm), or with Ray.

All of them call `execute`, which stores the result in the results folder; an engine returns only the reasons of
failures. A task whose worker was killed is run again, at most `ATTEMPTS` times. The folder of the data sets must be
visible here too: the keys of results contain the fingerprint of the data.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from multiprocessing.connection import Connection, wait
from typing import Any

from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import parse_call
from vitlab.experiments.runner import Task, execute
from vitlab.experiments.task_queue import Finished, Queue
from vitlab.progress import Bar

__all__ = ["ATTEMPTS", "engine"]

ATTEMPTS = 3

Engine = Callable[[Queue, Bar], Iterator[Finished]]


def engine(text: str = "serial", jobs_per_device: int = 1) -> Engine:
    """Returns the engine of an expression.

    Args:
        text: `serial`; `slurm`, with settings of submitit: `slurm(slurm_partition='gpu', timeout_min=600)`; or `ray`,
            with settings of `ray.init`: `ray(address='auto')`.
        jobs_per_device: number of tasks that run at the same time on each GPU, or on the CPU; 1 for `slurm`.

    >>> engine("serial").__name__
    'serial'
    """
    name, settings = parse_call(text)
    if jobs_per_device < 1:
        raise VitlabError(f"invalid --jobs-per-device {jobs_per_device}; expected at least 1")
    if name == "serial":
        if settings:
            raise VitlabError(f"serial takes no settings ({', '.join(settings)} given); omit them")
        return serial if jobs_per_device == 1 else lambda queue, bar: processes(queue, bar, jobs_per_device)
    if name == "slurm":
        if jobs_per_device > 1:
            raise VitlabError(
                f"--on slurm submits each job by itself, with one GPU (--jobs-per-device {jobs_per_device} given); "
                "omit --jobs-per-device, and set resources as slurm(gpus_per_node=1)"
            )
        _needs("submitit", "slurm")
        return lambda queue, bar: submitted(queue, bar, settings)
    if name == "ray":
        _needs("ray", "ray")
        return lambda queue, bar: on_ray(queue, bar, settings, jobs_per_device)
    raise unknown("engine", name, ["serial", "slurm", "ray"])


def _needs(library: str, extra: str) -> None:
    if find_spec(library) is None:
        raise VitlabError(f"--on {extra} needs {library}: pip install 'vitlab[{extra}]'")


def serial(queue: Queue, bar: Bar) -> Iterator[Finished]:
    """Run tasks one after another in this process."""
    for task in queue.take_all():
        with bar.piece(task.title) as report_progress:
            reason = execute(task, report_progress)
        yield from queue.finish(task, reason)


# -- processes ------------------------------------------------------------------------------------------------------


@dataclass
class _Worker:
    """A process that runs tasks, its connection, and the task that it runs."""

    process: Any
    connection: Connection
    task: Task | None = None

    def run(self, task: Task) -> None:
        """Send a task to the process."""
        self.task = task
        self.connection.send(task)


def processes(queue: Queue, bar: Bar, per_device: int) -> Iterator[Finished]:
    """Run tasks in worker processes: `per_device` on each GPU, or `per_device` on the CPU."""
    devices = _devices(queue.device)
    count = min(len(queue), per_device * len(devices))
    attempts: Counter[str] = Counter()
    import torch

    threads = max(1, torch.get_num_threads() // max(1, count))
    workers = [_start(devices[index % len(devices)], threads) for index in range(count)]
    try:
        while queue or any(worker.task for worker in workers):
            for worker in workers:
                if worker.task is None and (task := queue.take()) is not None:
                    worker.run(task)
                    attempts[task.key] += 1
            busy = [worker for worker in workers if worker.task]
            ready = wait([worker.connection for worker in busy])
            for worker in [worker for worker in busy if worker.connection in ready]:
                task, worker.task = worker.task, None
                assert task is not None
                try:
                    reason = worker.connection.recv()
                except (EOFError, ConnectionError):  # killed, for example for its memory
                    index = workers.index(worker)
                    workers[index] = _start(devices[index % len(devices)], threads)
                    if attempts[task.key] < ATTEMPTS:
                        workers[index].run(task)
                        attempts[task.key] += 1
                        continue
                    reason = f"its process was killed {ATTEMPTS} times"
                with bar.piece(task.title):
                    pass
                yield from queue.finish(task, reason)
    finally:
        for worker in workers:
            worker.connection.close()
            worker.process.join(timeout=10)
            if worker.process.is_alive():
                worker.process.terminate()


def _devices(given: str | None) -> list[str | None]:
    """The devices to use: all GPUs, unless one is given."""
    import torch

    if given not in (None, "cuda") or not torch.cuda.is_available():
        return [given]
    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


def _start(device: str | None, threads: int) -> _Worker:
    """Start a process; a new interpreter, because CUDA does not work in a forked process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, device, threads))
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(connection: Connection, device: str | None, threads: int) -> None:
    """Run the tasks that arrive until the connection is closed."""
    import torch

    torch.set_num_threads(threads)
    while True:
        try:
            task = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            connection.send(execute(replace(task, device=device or task.device)))
        except KeyboardInterrupt:
            return


# -- Slurm ----------------------------------------------------------------------------------------------------------


def submitted(
    queue: Queue, bar: Bar, settings: Mapping[str, Any], cluster: str = "slurm", poll: float = 5.0
) -> Iterator[Finished]:
    """Run each task as a job of submitit, which is submitted when the training runs that it needs are finished.

    Args:
        queue: the tasks to run; the results folder must be visible to all nodes.
        bar: shows finished tasks.
        settings: parameters of submitit, for example `slurm_partition`, `timeout_min`, `gpus_per_node`.
        cluster: `slurm`, or `local` for processes on this machine.
        poll: seconds between two checks of the jobs.
    """
    import submitit

    executor = submitit.AutoExecutor(folder=queue.out / "submitit", cluster=cluster)
    executor.update_parameters(**{"gpus_per_node": 1, "cpus_per_task": 8, **settings})

    def submit(task: Task) -> Any:
        return executor.submit(execute, replace(task, out=task.out.resolve()))

    jobs: dict[Any, tuple[Task, int]] = {}
    while queue or jobs:
        jobs |= {submit(task): (task, 1) for task in queue.take_all()}
        for job in [job for job in jobs if job.done()]:
            task, attempt = jobs.pop(job)
            try:
                reason = str(job.result())
            except Exception as error:  # the job ended without a result: killed, or past its time limit
                if attempt < ATTEMPTS:
                    jobs[submit(task)] = (task, attempt + 1)
                    continue
                reason = f"its job ended {ATTEMPTS} times without a result ({type(error).__name__})"
            with bar.piece(task.title):
                pass
            yield from queue.finish(task, reason)
        time.sleep(poll if jobs else 0)


# -- Ray ------------------------------------------------------------------------------------------------------------


def on_ray(queue: Queue, bar: Bar, settings: Mapping[str, Any], jobs_per_device: int = 1) -> Iterator[Finished]:
    """Run each task as a task of Ray, on a running cluster or on this machine.

    Args:
        queue: the tasks to run; the results folder must be visible to all nodes.
        bar: shows finished tasks.
        settings: of `ray.init`, for example `address='auto'`.
        jobs_per_device: number of tasks that share a GPU.
    """
    import ray

    if not ray.is_initialized():
        ray.init(**{"log_to_driver": False, "include_dashboard": False, **settings})
    resources: Any = ray.cluster_resources  # has no annotations
    gpus = 1 / jobs_per_device if resources().get("GPU") else 0
    remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=ATTEMPTS - 1)(execute)
    running: dict[Any, Task] = {}
    while queue or running:
        running |= {remote.remote(replace(task, out=task.out.resolve())): task for task in queue.take_all()}
        (done, *_), _ = ray.wait(list(running), num_returns=1)
        task = running.pop(done)
        try:
            reason = str(ray.get(done))
        except ray.exceptions.RayError as error:
            reason = f"its worker was lost ({type(error).__name__})"
        with bar.piece(task.title):
            pass
        yield from queue.finish(task, reason)
