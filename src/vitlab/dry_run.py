"""What a command would run, on which data, and for how long, without running it.

Models and data are opened as the command would open them, so that its errors appear at once. Times are measured: one
forward over a batch, or four training steps.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitlab.core.batches import Batches
from vitlab.core.errors import VitlabError
from vitlab.core.out_folder import check_writable
from vitlab.core.recipe import Recipe
from vitlab.core.store import Run
from vitlab.data.catalogue import open_data
from vitlab.data.detection_sets import open_detection
from vitlab.data.question_catalogue import open_questions
from vitlab.data.segmentation_sets import open_pairs
from vitlab.eval_mode import eval_mode
from vitlab.identity import identify
from vitlab.measured_model import MeasuredModel
from vitlab.runner import Kind, folder_of, pending, prepare
from vitlab.tasks import train_task
from vitlab.training.device import choose_device

_OPENERS: Mapping[str, Callable[..., Any]] = {
    "classification": open_data,
    "segmentation": open_pairs,
    "detection": open_detection,
    "vqa": open_questions,
}

__all__ = ["PlannedMeasurement", "PlannedTraining", "planned_measurements", "planned_training"]


@dataclass(frozen=True)
class PlannedMeasurement:
    """A measurement that a command would make.

    Args:
        procedure: name of the instrument or stress test.
        model: the model expression.
        weights: origin of its weights.
        data: the data that it is measured on.
        images: number of images; None if it is not known before they are read.
        device: where the model runs.
        cost: of the procedure, in forwards over the images, as its card states it.
        forward_seconds: estimated time of one forward over the images; None if it has no images.
        stored: whether the folder already holds it, so that it is not made again.
    """

    procedure: str
    model: str
    weights: str
    data: str
    images: int | None
    device: str
    cost: str
    forward_seconds: float | None
    stored: bool


@dataclass(frozen=True)
class PlannedTraining:
    """A training run that a command would start.

    Args:
        model, data: expressions.
        device: where it would run.
        epochs, steps: number of epochs, and of steps in all.
        finished_steps: steps that the folder already holds.
        images_per_second: measured in two steps after two others, without compilation.
        seconds: estimated time of the remaining steps, without evaluation and compilation.
        evaluations: number of evaluations.
    """

    model: str
    data: str
    device: str
    epochs: int
    steps: int
    finished_steps: int
    images_per_second: float
    seconds: float
    evaluations: int


def planned_measurements(
    kind: Kind, models: Sequence[str], names: Sequence[str], out: Path, **options: Any
) -> Iterator[PlannedMeasurement]:
    """Yields each measurement that `runner.run_all` would make or reuse.

    Args:
        kind, models, names, out: see `runner.run_all`.
        options: all options of `runner.prepare`.
    """
    opened, jobs = prepare(kind, models, names, out, **options)
    while opened:
        model = opened.pop(0)
        origin = identify(model.model).origin
        for job in jobs:
            for procedure in job.procedures:
                one = pending(model, procedure, job.part, folder_of(model.text, out))
                images, seconds = _forward(model, one.inputs)
                part = f", part {job.part} of {model.repeats}" if one.part else ""
                yield PlannedMeasurement(
                    procedure.name,
                    model.text,
                    origin,
                    f"{_data(model, one.inputs)}{part}",
                    images,
                    model.device,
                    procedure.card.cost,
                    seconds,
                    one.stored,
                )


def planned_training(
    recipe: Recipe, out: Path, *, root: str | Path | None = None, device: str | None = None
) -> PlannedTraining:
    """Train four steps in a temporary folder; returns what the whole run would do, and its time.

    Args:
        recipe: the training run.
        out: its run folder, which is read only.
        root, device: see `tasks.train_task`.
    """
    check_writable(out)
    short = replace(recipe, epochs=2, steps_per_epoch=2, compile=False, evaluate_every=2, snapshots=(), log_every=0)
    short = replace(short, evaluate_images=1, checkpoint_every=0)
    with tempfile.TemporaryDirectory(prefix="vitlab-dry-run-") as folder:
        train_task(short, folder, root=root, device=device)
        rate = float(Run(Path(folder)).epochs()[-1]["images_per_second"])
    per_epoch = recipe.steps_per_epoch or _training_images(recipe, root) // recipe.batch_size
    steps = recipe.epochs * per_epoch
    done = _finished(out)
    return PlannedTraining(
        recipe.model,
        recipe.data,
        choose_device(device),
        recipe.epochs,
        steps,
        done,
        rate,
        max(0, steps - done) * recipe.batch_size / rate,
        -(-recipe.epochs // recipe.evaluate_every),
    )


def _forward(model: MeasuredModel, inputs: Any) -> tuple[int | None, float | None]:
    """Returns the number of images and the time of one forward over them, from the second of two forwards."""
    if not isinstance(inputs, Batches):
        return None, None
    first = next(iter(inputs), None)
    images = first[0] if isinstance(first, tuple | list) else first
    if not isinstance(images, Tensor):
        return None, None
    batch, seconds = images.to(model.device), 0.0
    with eval_mode(model.model), torch.no_grad():
        for _ in range(2):
            start = time.perf_counter()
            model.model(batch)
            if batch.device.type == "cuda":
                torch.cuda.synchronize()
            seconds = time.perf_counter() - start
    count = None
    with suppress(TypeError):
        count = len(inputs)
    total = len(images) * count if count else model.images
    return total, None if total is None else seconds * total / len(images)


def _training_images(recipe: Recipe, root: str | Path | None) -> int:
    """The number of training images, or questions, of a recipe."""
    data: Any = _OPENERS[recipe.task](recipe.data, root=root, image_size=recipe.image_size)
    return len(data.train)


def _data(model: MeasuredModel, inputs: Any) -> str:
    if isinstance(inputs, Batches):
        return model.data
    return str(inputs) if isinstance(inputs, Path) else "no images"


def _finished(out: Path) -> int:
    """The number of steps that a run folder holds; 0 if there is none."""
    try:
        rows = Run(out).epochs() if out.is_dir() else []
    except (VitlabError, OSError):
        return 0
    return int(rows[-1].get("step", 0)) if rows else 0
