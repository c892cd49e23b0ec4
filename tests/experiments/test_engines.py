"""Engines give the results of the serial one; the task of a killed worker is done again; failures are reported."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.small import ENTROPY, SHORT, TRAINED
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.experiments import engines
from vitlab.experiments.runner import Task
from vitlab.experiments.task_queue import Finished, Queue
from vitlab.experiments.work import Training, Work, work_of
from vitlab.progress import Bar

BROKEN = work_of(replace(ENTROPY, arm="broken", model="timm/no_such_model"))
MEASURED = [work_of(replace(ENTROPY, seed=seed)) for seed in (0, 1, 2)]
LONG = work_of(replace(TRAINED, changes=(*SHORT, "epochs=60", "checkpoint_every=1"))).needs[0]


@pytest.fixture(scope="module")
def ray_of_two() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def run(engine: engines.Engine, works: Sequence[Work | Training], out: Path) -> dict[str, str]:
    tasks = [Task(work, out, "", "cpu") for work in works]
    with Bar(len(tasks), show=False) as bar:
        return {task.key: reason for task, reason in engine(Queue(tasks), bar)}


def in_processes(queue: Queue, bar: Bar) -> Iterator[Finished]:
    return engines.processes(queue, bar, 2)


def in_submitit(queue: Queue, bar: Bar) -> Iterator[Finished]:
    settings = {"gpus_per_node": 0, "timeout_min": 5}
    return engines.submitted(queue, bar, settings, cluster="local", poll=0.2)


def in_ray(queue: Queue, bar: Bar) -> Iterator[Finished]:
    return engines.on_ray(queue, bar, {})


def values(out: Path, works: list[Work]) -> list[dict[str, np.ndarray]]:
    return [dict(work.results(out)[0].values) for work in works]


def kill_the_worker(folder: Path) -> None:
    """Kill the process that trains in a run folder, when it has saved a checkpoint; its lock file has its number."""
    while not list(folder.glob("checkpoints/*.safetensors")):
        time.sleep(0.05)
    os.kill(json.loads((folder / ".lock").read_text(encoding="utf-8"))["pid"], signal.SIGKILL)


def check(engine: engines.Engine, out: Path) -> None:
    """Same results as the serial engine, one failure reported."""
    reasons = run(engine, [MEASURED[0], BROKEN, *MEASURED[1:]], out / "many")
    assert [key for key, reason in reasons.items() if reason] == [BROKEN.key()] and len(reasons) == 4
    assert set(run(engines.serial, MEASURED, out / "one").values()) == {""}
    for many, one in zip(values(out / "many", MEASURED), values(out / "one", MEASURED), strict=True):
        assert all(np.array_equal(many[name], one[name]) for name in one)


def check_killed(engine: engines.Engine, out: Path) -> None:
    """The result of a run whose process was killed is that of an uninterrupted one."""
    killer = threading.Thread(target=kill_the_worker, args=(LONG.folder(out / "killed"),), daemon=True)
    killer.start()
    assert list(run(engine, [LONG], out / "killed").values()) == [""]
    killer.join(timeout=1)
    assert not killer.is_alive(), "the process was not killed"
    assert list(run(engines.serial, [LONG], out / "whole").values()) == [""]
    killed, whole = ((LONG.folder(out / name) / "model.safetensors").read_bytes() for name in ("killed", "whole"))
    assert killed == whole


def check_needs(engine: engines.Engine, out: Path) -> None:
    """A measurement runs after the training that it needs, and fails with the reason of its training."""
    bad = work_of(replace(TRAINED, changes=("model=timm/no_such_model",)))
    measured, curve = work_of(replace(TRAINED, procedure="attention_entropy", images=2)), work_of(TRAINED)
    reasons = run(engine, [curve.needs[0], curve, measured, bad.needs[0], bad], out)
    failed = {key: reason.startswith("its training failed: ") for key, reason in reasons.items() if reason}
    assert failed == {bad.needs[0].key(): False, bad.key(): True}
    assert curve.results(out) and measured.results(out) and not bad.results(out)


@pytest.mark.slow
@pytest.mark.parametrize("test", [check, check_killed, check_needs])
def test_processes(test: Callable[..., None], tmp_path: Path) -> None:
    test(in_processes, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("test", [check, check_killed, check_needs])
def test_submitit(test: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as in this process: sums over more threads differ in the last bits
    monkeypatch.setenv("MKL_NUM_THREADS", "1")
    test(in_submitit, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("test", [check, check_killed, check_needs])
def test_ray(test: Callable[..., None], tmp_path: Path, ray_of_two: None) -> None:
    test(in_ray, tmp_path)


def test_serial_runs_what_is_needed_first(tmp_path: Path) -> None:
    check_needs(engines.serial, tmp_path)


def test_serial_reports_failures(tmp_path: Path) -> None:
    reasons = run(engines.engine("serial"), [BROKEN, MEASURED[0]], tmp_path)
    assert [bool(reason) for reason in reasons.values()] == [True, False]
    assert isinstance(MEASURED[0].results(tmp_path)[0], Measurement)


@pytest.mark.parametrize(
    ("text", "jobs", "message"),
    [
        ("kubernetes", 1, "kubernetes"),
        ("serial", 0, "jobs-per-device"),
        ("serial(a=1)", 1, "takes no settings"),
        ("slurm(timeout_min=5)", 2, "--jobs-per-device 2 given.*omit"),
    ],
)
def test_unknown_engines_are_refused(text: str, jobs: int, message: str) -> None:
    with pytest.raises(VitlabError, match=message):
        engines.engine(text, jobs)


def test_engines_without_their_library_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    for text, extra in (("slurm", "slurm"), ("ray", "ray")):
        with pytest.raises(VitlabError, match=rf"vitlab\[{extra}\]"):
            engines.engine(text)
