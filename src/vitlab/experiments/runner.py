"""Run the work of jobs: training runs and measurements, stored under the keys of their inputs (`work.py`)."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitlab import runner, zoo
from vitlab.core import plugins
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_call
from vitlab.core.lock import locked
from vitlab.core.measurement import Measurement
from vitlab.core.provenance import provenance
from vitlab.core.recipe import Recipe
from vitlab.core.settings import check_settings
from vitlab.core.step_cache import ReportProgress, step_cache
from vitlab.experiments.block_plan import block_plan
from vitlab.experiments.speed import speed
from vitlab.experiments.training_curve import training_curve
from vitlab.experiments.work import Training, Work
from vitlab.identity import identify, signed
from vitlab.model_sizes import size_of
from vitlab.preprocessing.resolution import input_size
from vitlab.progress import Bar
from vitlab.tasks import train_task
from vitlab.training.device import choose_device

__all__ = ["Task", "execute", "measured", "trained"]


@dataclass(frozen=True)
class Task:
    """One training run or one measurement to be made, with the folders and the device to use.

    Args:
        work: the training run or the measurement.
        out: the results folder.
        root: the folder of the data sets; empty for none.
        device: `cpu`, `cuda`, …; None for the default.
    """

    work: Training | Work
    out: Path
    root: str = ""
    device: str | None = None

    @property
    def key(self) -> str:
        """The key of its work."""
        return self.work.key(self.root)

    @property
    def needs(self) -> list[str]:
        """The keys of the training runs that must be finished before it begins."""
        return [run.key(self.root) for run in self.work.needs]

    @property
    def title(self) -> str:
        """What is run, for progress and errors."""
        if isinstance(self.work, Training):
            return f"training {self.work.text}, seed {self.work.seed}"
        return f"{self.work.job.procedure} of {self.work.job.arm}"


def execute(task: Task, report_progress: ReportProgress | None = None) -> str:
    """Run a task and store its result; returns an empty string, or the reason of its failure in one line.

    A stored result is used again. An interrupted task resumes.
    """
    try:
        with step_cache(None, report_progress):
            if isinstance(task.work, Training):
                trained(task.work, task.out, task.root, task.device, report_progress)
            else:
                measured(task.work, task.out, task.root, task.device)
    except VitlabError as error:
        return " ".join(str(error).split())
    except Exception as error:  # one failed job must not end the others
        traceback.print_exc()
        return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
    return ""


def trained(
    run: Training, out: Path, root: str = "", device: str | None = None, report_progress: ReportProgress | None = None
) -> Path:
    """Train a run if it has no final weights yet; returns its folder."""
    folder = run.folder(out, root)
    if (folder / "model.safetensors").is_file():
        return folder
    recipe = run.resolved(out, root)

    def log(row: Mapping[str, Any]) -> None:
        if report_progress is not None and "epoch" in row:
            report_progress(f"epoch {row['epoch']}", recipe.epochs, "done")

    train_task(recipe, folder, root=root or None, device=device, log=log, show=False)
    return folder


def measured(work: Work, out: Path, root: str = "", device: str | None = None) -> list[Measurement]:
    """Make the measurements of a job if they are not stored yet, and return them."""
    folder = work.folder(out, root)
    if not folder.is_dir():
        unfinished = out / "unfinished" / folder.name
        with locked(unfinished):
            if not folder.is_dir():  # another process may have finished it
                found = _procedure(work)(work, out, root, device, unfinished / "parts")
                for index, measurement in enumerate(found):
                    about = {**provenance(), **measurement.provenance}
                    replace(measurement, provenance=about).save(unfinished / "done" / f"{index:03d}")
                folder.parent.mkdir(parents=True, exist_ok=True)
                (unfinished / "done").replace(folder)
        with suppress(OSError):
            shutil.rmtree(unfinished)
    return work.results(out, root)


# -- procedures -----------------------------------------------------------------------------------------------------


_Run = Callable[[Work, Path, str, str | None, Path], list[Measurement]]


def _procedure(work: Work) -> _Run:
    special: dict[str, _Run] = {"training": _training, "sizes": _sizes, "blocks": _blocks, "speed": _speed}
    return special.get(work.job.kind, _instrument)


def _instrument(work: Work, out: Path, root: str, device: str | None, folder: Path) -> list[Measurement]:
    """Measure with an instrument or a stress test."""
    job = work.job
    run = runner.measure if job.kind in plugins.instruments() else runner.stress
    data = None if job.data is None else job.data.replace("{root}", root)
    procedure = job.procedure
    if work.training is not None:
        procedure = procedure.replace("{run}", str(work.training.folder(out, root).resolve()))
    options: dict[str, Any] = {"data": data, "images": job.images, "repeats": job.repeats, "seed": job.seed}
    with Bar(1, show=False) as bar:
        paths = run(
            [work.model(out, root)], [procedure], folder,
            root=Path(root) if root else None, device=device, bar=bar, **options,
        )  # fmt: skip
        return [Measurement.load(path) for path in paths]


def _training(work: Work, out: Path, root: str, device: str | None, folder: Path) -> list[Measurement]:
    if work.training is None:
        raise VitlabError(f"job {work.job.arm!r}: the procedure training needs recipe=")
    return [training_curve(work.training.folder(out, root))]


def _sizes(work: Work, out: Path, root: str, device: str | None, folder: Path) -> list[Measurement]:
    text = zoo.builder_of(work.model(out, root))
    recipe = _recipe(work)
    size = size_of(text, size=recipe.image_size if recipe else None)
    values = {"parameters": size.parameters, "macs": size.macs, "added_macs": size.added_macs}
    about = {"model": {"name": text, "expression": text}}
    return [Measurement("sizes", text, values, dict.fromkeys(values, ()), provenance=about)]  # type: ignore[arg-type]


def _blocks(work: Work, out: Path, root: str, device: str | None, folder: Path) -> list[Measurement]:
    model = zoo.load(zoo.builder_of(work.model(out, root)), seed=work.job.seed)
    recipe = _recipe(work)
    return [signed(block_plan(model, recipe.image_size if recipe else None), identify(model))]


def _speed(work: Work, out: Path, root: str, device: str | None, folder: Path) -> list[Measurement]:
    _, settings = parse_call(work.job.procedure)
    check_settings("speed", speed, settings)
    model = zoo.load(zoo.builder_of(work.model(out, root)), seed=work.job.seed).to(choose_device(device))
    identity, recipe = identify(model), _recipe(work)
    size = recipe.image_size if recipe else input_size(model)
    return [signed(speed(model, size, **settings), identity)]


def _recipe(work: Work) -> Recipe | None:
    """The recipe of a job that names one."""
    job = work.job
    return Training(job.recipe, job.changes, job.seed).recipe("trained", "{root}") if job.recipe else None
