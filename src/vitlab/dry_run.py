"""What a command would run, on which data, and for how long, without running it.

Models and data are opened as the command would open them, so that its errors appear at once. Times are measured: one
forward over a batch, or four training steps.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitlab.adapters import describe
from vitlab.adapters.wrappers import unwrap
from vitlab.core.batches import Batches
from vitlab.core.errors import VitlabError
from vitlab.core.forwards import WITH_GRADIENTS, forwards
from vitlab.core.out_folder import check_writable
from vitlab.core.recipe import Recipe
from vitlab.core.store import Run
from vitlab.data.catalogue import open_data
from vitlab.data.detection_sets import open_detection
from vitlab.data.question_catalogue import open_questions
from vitlab.data.segmentation_sets import open_pairs
from vitlab.eval_mode import eval_mode
from vitlab.identity import identify
from vitlab.instruments.causal_trace import forward_counts
from vitlab.interventions.units import units
from vitlab.runner import prepare
from vitlab.runner.jobs import Kind, folder_of, pending
from vitlab.runner.measured_model import MeasuredModel, Procedure
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
        images: number of images that are measured; None if it is not known before they are read.
        device: where the model runs.
        cost: of the procedure, in forwards over the images, as its card states it.
        forward_seconds: estimated time of one forward over the images; None if it has no images.
        stored: whether the folder already holds it, so that it is not made again.
        seconds: estimated time of the measurement: the time of one forward, times the number of forwards by its cost.
            Measurements of a shared pass have equal shares of it. 0 if it is stored; None if it is not estimated.
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
    seconds: float | None = None


@dataclass(frozen=True)
class PlannedTraining:
    """A training run that a command would start.

    Args:
        model, data: expressions.
        device: where it would run.
        epochs, steps: number of epochs, and of steps in all.
        finished_steps: steps that the folder already holds.
        images_per_second: measured in two steps after two others, without compilation.
        seconds: estimated time of the remaining steps and evaluations, without compilation.
        evaluations: number of evaluations.
        evaluation_seconds: the share of the remaining evaluations in `seconds`. A forward is taken as a third of a
            training step.
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
    evaluation_seconds: float


def planned_measurements(
    kind: Kind, models: Sequence[str], names: Sequence[str], out: Path, **options: Any
) -> Iterator[PlannedMeasurement]:
    """Yields each measurement that `runner.run_all` would make or reuse.

    Args:
        kind, models, names, out: see `runner.run_all`.
        options: all options of `runner.prepare`.
    """
    with _nothing_to_resume():
        opened, jobs = prepare(kind, models, names, out, **options)
        while opened:
            model = opened.pop(0)
            origin = identify(model.model).origin
            for job in jobs:
                wanted = [pending(model, each, job.part, folder_of(model.text, out)) for each in job.procedures]
                missing = sum(not one.stored for one in wanted)
                for one in wanted:
                    procedure = one.procedure
                    settings = {**procedure.defaults, **one.settings}
                    batch = _first_batch(model, one.inputs)
                    images, seconds = _limited(*_forward(model, one.inputs, batch), procedure, settings)
                    count = forwards(procedure.card.cost, {**settings, **_counted(model, batch, procedure, settings)})
                    estimate = None if seconds is None or count is None else count * seconds / max(missing, 1)
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
                        0.0 if one.stored else estimate,
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
    with _nothing_to_resume(), tempfile.TemporaryDirectory(prefix="vitlab-dry-run-") as folder:
        train_task(short, folder, root=root, device=device)
        rate = float(Run(Path(folder)).epochs()[-1]["images_per_second"])
    training_images, test_images = _image_counts(recipe, root)
    per_epoch = recipe.steps_per_epoch or training_images // recipe.batch_size
    steps = recipe.epochs * per_epoch
    done = _finished(out)
    remaining = max(0, steps - done)
    evaluated = min(test_images, recipe.evaluate_images or test_images) * (2 if recipe.ema else 1)
    evaluations = _evaluations(recipe.epochs, recipe.evaluate_every)
    past = _evaluations(done // per_epoch, recipe.evaluate_every, last=remaining == 0)
    evaluating = (evaluations - past) * evaluated / (WITH_GRADIENTS * rate)
    return PlannedTraining(
        recipe.model,
        recipe.data,
        choose_device(device),
        recipe.epochs,
        steps,
        done,
        rate,
        remaining * recipe.batch_size / rate + evaluating,
        evaluations,
        evaluating,
    )


@contextmanager
def _nothing_to_resume() -> Iterator[None]:
    """Replace the message of an interrupt, which says how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; a dry run stores nothing") from None


def _first_batch(model: MeasuredModel, inputs: Any) -> Tensor | None:
    """The first images of a data set, on the device of the model; None if the inputs are not images."""
    first = next(iter(inputs), None) if isinstance(inputs, Batches) else None
    images = first[0] if isinstance(first, tuple | list) else first
    return images.to(model.device) if isinstance(images, Tensor) else None


def _counted(
    model: MeasuredModel, batch: Tensor | None, procedure: Procedure, settings: Mapping[str, Any]
) -> dict[str, Sequence[Any]]:
    """What the cost of a procedure counts in the model: the units of `lesion`, the forwards of `causal_trace`."""
    if batch is None or procedure.name not in ("lesion", "causal_trace"):
        return {}
    inner = unwrap(model.model)
    with eval_mode(inner), torch.no_grad():
        anatomy = describe(inner, (int(batch.shape[-2]), int(batch.shape[-1])))
        if procedure.name == "lesion":
            return {"units": units(inner, anatomy, batch, settings["conv"])}
        return {"layers": forward_counts(inner, anatomy, batch, settings["cells"])}


def _forward(model: MeasuredModel, inputs: Any, batch: Tensor | None) -> tuple[int | None, float | None]:
    """Returns the number of images and the time of one forward over them, from the second of two forwards."""
    if batch is None:
        return None, None
    seconds = 0.0
    with eval_mode(model.model), torch.no_grad():
        for _ in range(2):
            start = time.perf_counter()
            model.model(batch)
            if batch.device.type == "cuda":
                torch.cuda.synchronize()
            seconds = time.perf_counter() - start
    total = inputs.count or model.images
    return total, None if total is None else seconds * total / len(batch)


def _limited(
    images: int | None, seconds: float | None, procedure: Procedure, settings: Mapping[str, Any]
) -> tuple[int | None, float | None]:
    """The number of images that a procedure measures and the time of one forward over these.

    `images`, or `mini_batches` of `batch_size` images, limit those of the data. `count` is the number of images that
    a procedure makes itself.
    """
    if images is None or seconds is None:
        return images, seconds
    used = images
    if procedure.card.inputs == "optional images":
        used = settings.get("count") or images
    elif settings.get("mini_batches"):
        used = min(images, settings["mini_batches"] * settings["batch_size"])
    elif settings.get("images"):
        used = min(images, settings["images"])
    return used, seconds * used / images


def _image_counts(recipe: Recipe, root: str | Path | None) -> tuple[int, int]:
    """The numbers of training images and of test images, or of questions, of a recipe."""
    data: Any = _OPENERS[recipe.task](recipe.data, root=root, image_size=recipe.image_size)
    return len(data.train), len(data.test)


def _evaluations(epochs: int, every: int, *, last: bool = True) -> int:
    """The number of evaluations in a number of epochs; the last epoch of a run is always evaluated.

    >>> _evaluations(7, 3), _evaluations(7, 3, last=False), _evaluations(0, 3)
    (3, 2, 0)
    """
    return -(-epochs // every) if last else epochs // every


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
