"""The job queue: worker processes that train on one device, and the main process that assigns the runs.

Every finished run is one file, written whole. An exception ends its run only; it is written to `errors.txt`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import tarfile
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from evidence.conditions import Job, recipe_of
from evidence.measuring import Extent
from evidence.scheduling import Durations, next_job, variant
from vitlab.core.errors import VitlabError
from vitlab.core.store import write_atomically

__all__ = ["Setup", "names_of_finished", "work_off"]


@dataclass(frozen=True)
class Setup:
    """Settings of every worker.

    Args:
        out: the folder for results.
        data: a data expression.
        settings: changes to every recipe, `key=value`.
        extent: how much is measured; None for nothing.
        device: `cpu` or `cuda`; by default CUDA where there is one.
    """

    out: Path
    data: str
    settings: tuple[str, ...] = ()
    extent: Extent | None = None
    device: str | None = None


@dataclass
class _Worker:
    """A worker process, its pipe, its current run, and its compiled variants."""

    process: BaseProcess
    pipe: Connection
    job: Job | None = None
    compiled: set[tuple[object, ...]] = field(default_factory=set)


def work_off(
    jobs: Sequence[Job], setup: Setup, *, workers: int, seconds: float | None = None, tar: Path | None = None
) -> int:
    """Execute the runs; returns the number of finished runs.

    Args:
        jobs: in order of priority.
        setup: what the workers need to know.
        workers: processes that share the device.
        seconds: no run is begun that is not expected to end within this time.
        tar: a file that all results are packed into, after each of them.
    """
    queue = _Queue(list(jobs), setup, time.monotonic() + seconds if seconds else float("inf"), workers)
    signal.signal(signal.SIGTERM, _interrupt)
    packed = 0
    try:
        for _ in range(min(workers, len(jobs))):
            queue.start()
        while queue.workers:
            queue.attend()
            if tar is not None and queue.finished > packed:
                pack(setup.out, tar)
                packed = queue.finished
    except KeyboardInterrupt:
        print("interrupted: unfinished runs are dropped, finished ones are kept", flush=True)
    finally:
        queue.stop()
        if tar is not None:
            pack(setup.out, tar)
    return queue.finished


def pack(folder: Path, tar: Path) -> None:
    """Write the files of a folder to one compressed tar file, atomically."""
    with write_atomically(tar) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for path in sorted([*folder.glob("*.json"), *folder.glob("*.txt")]):
            archive.add(path, path.name)


class _Queue:
    """Assigns runs to workers within the time limit."""

    def __init__(self, pending: list[Job], setup: Setup, end: float, workers: int) -> None:
        self.pending, self.setup, self.end = pending, setup, end
        self.workers: list[_Worker] = []
        self.durations = Durations(per_epoch=1.0 * workers)
        self.finished = 0

    def start(self) -> None:
        """Start a worker process; it requests a run when it is ready."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self.setup), daemon=False)
        process.start()
        theirs.close()
        self.workers.append(_Worker(process, ours))

    def attend(self) -> None:
        """Handle messages of the workers; waits at most one second."""
        for pipe in wait([worker.pipe for worker in self.workers], timeout=1.0):
            worker = next(each for each in self.workers if each.pipe is pipe)
            try:
                self._receive(worker, worker.pipe.recv())
            except (EOFError, ConnectionError):
                self._lost(worker)

    def stop(self) -> None:
        """Stop all workers."""
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            worker.process.join(10)
            if worker.process.is_alive():
                worker.process.kill()
        self.workers = []

    def _receive(self, worker: _Worker, result: dict[str, Any]) -> None:
        if worker.job is not None:
            self._done(worker, worker.job, result)
        worker.job = self._choose(worker)
        worker.pipe.send(worker.job)
        if worker.job is not None:
            self.pending.remove(worker.job)
        else:
            self.workers.remove(worker)
            worker.process.join()

    def _done(self, worker: _Worker, job: Job, result: dict[str, Any]) -> None:
        if not result:  # it failed; see errors.txt
            print(f"{job.name}: failed", flush=True)
            return
        compiled = variant(job) in worker.compiled
        worker.compiled.add(variant(job))
        self.durations.learn(job, result["epochs"], result["training"], result["measuring"], compiled)
        self.finished += 1
        left = "" if self.end == float("inf") else f", {self.end - time.monotonic():.0f} s left"
        print(
            f"{job.name}: top-1 {result['top1']:.2f}, {result['images_per_second']:,} images/s, trained in"
            f" {result['training']:.1f} s, measured in {result['measuring']:.1f} s, {len(self.pending)} to go{left}",
            flush=True,
        )

    def _choose(self, worker: _Worker) -> Job | None:
        """Returns the next run that fits into the remaining time."""
        fitting = [job for job in self.pending if self._fits(job, worker)]
        return next_job(fitting, worker.compiled)

    def _fits(self, job: Job, worker: _Worker) -> bool:
        epochs = recipe_of(job, self.setup.settings).epochs
        expected = self.durations.estimate(job, epochs, variant(job) in worker.compiled)
        return time.monotonic() + expected < self.end

    def _lost(self, worker: _Worker) -> None:
        """Log that a worker exited unexpectedly, and start another one."""
        self.workers.remove(worker)
        worker.process.join()
        doing = worker.job.name if worker.job else "nothing"
        note_error(self.setup.out, doing, f"the process ended with exit code {worker.process.exitcode}\n")
        if worker.job is not None and self.pending:
            self.start()


def note_error(out: Path, name: str, text: str) -> None:
    """Append to `errors.txt` and print."""
    with (out / "errors.txt").open("a", encoding="utf-8") as file:
        file.write(f"== {name}\n{text}\n")
    print(f"error in {name}: {text.strip().splitlines()[-1]}", file=sys.stderr, flush=True)


def _serve(pipe: Connection, setup: Setup) -> None:
    """Worker process: request a run, execute it, write its file and report its duration, until there are no more."""
    from evidence.training import Trainer

    def failed(name: str, text: str) -> None:
        note_error(setup.out, name, text)

    trainer = Trainer(setup.data, setup.settings, setup.extent, failed, setup.device)
    result: dict[str, Any] = {}
    while True:
        pipe.send(result)
        job = pipe.recv()
        if job is None:
            return
        try:
            found = trainer.run(job)
            with write_atomically(setup.out / f"{job.name}.json") as file:
                file.write(json.dumps(found, ensure_ascii=False).encode())
            result = {**found["seconds"], **{key: found[key] for key in ("epochs", "top1", "images_per_second")}}
        except KeyboardInterrupt:
            return
        except Exception:  # a failed run does not stop the others
            failed(job.name, traceback.format_exc())
            result = {}


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def process_environment(cache: Path) -> None:
    """Let all workers share one cache of compiled kernels."""
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache))
    os.environ.setdefault("TRITON_CACHE_DIR", str(cache / "triton"))


def names_of_finished(given: Path | None) -> set[str]:
    """Names of runs, from the files of a folder or the lines of a file."""
    if given is None:
        return set()
    if given.is_dir():
        return {path.stem for path in given.glob("*.json")}
    if given.is_file():
        return {Path(line.strip()).stem for line in given.read_text(encoding="utf-8").splitlines() if line.strip()}
    raise VitlabError(f"--done names {given}, which is neither a folder nor a file")
