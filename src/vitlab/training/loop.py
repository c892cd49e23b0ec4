"""The training loop.

All random numbers of a step depend only on (seed, step, rank). On a CPU, a run that was killed and resumed from its
last checkpoint therefore gives bit for bit the result of an uninterrupted run.
"""

from __future__ import annotations

import dataclasses
import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from timm.utils import ModelEmaV3
from torch import nn

from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Recipe
from vitlab.core.store import Run
from vitlab.data.seeding import step_seed
from vitlab.training.bar import training_bar
from vitlab.training.distributed import World, any_rank, main_first, sum_over_ranks, wrap
from vitlab.training.feed import Feed, FixedEpoch
from vitlab.training.optimizer import learning_rate, set_learning_rate
from vitlab.training.outputs import Outputs
from vitlab.training.state import Position, make_state
from vitlab.training.step import Batch, Loss, Step, capture, make_step

_CHECKPOINT_PERIOD = 60.0  # minimum number of seconds between checkpoints at the ends of epochs


class Interrupted(KeyboardInterrupt):
    """The run was interrupted by a signal, after it saved a checkpoint."""


def train(
    recipe: Recipe,
    model: nn.Module,
    feed: Feed,
    loss: Loss,
    evaluate: Callable[[nn.Module], dict[str, float]],
    run: Run,
    *,
    world: World | None = None,
    show: bool = False,
    log: Callable[[dict[str, Any]], None] | None = None,
    about: Mapping[str, Any] | None = None,
    compile_on_cpu: bool = False,
) -> dict[str, Any]:
    """Train a model with a recipe; resumes from the newest checkpoint of the run folder.

    Args:
        recipe: the settings of the run.
        model: the model, trained in place.
        feed: the source of batches.
        loss: (model, batch) -> scalar.
        evaluate: model -> metrics; called for the raw weights, and for the averaged weights if there are any.
        run: the folder for checkpoints, snapshots, metrics and the final weights.
        world: rank, world size and device of this process; by default a single process on the CPU.
        show: whether to show a progress bar on stderr.
        log: called with each row of metrics, in addition to `metrics.jsonl`.
        about: metadata saved with weights, such as the normalisation.
        compile_on_cpu: whether a recipe with `compile` is also compiled on a CPU, which takes minutes.

    Returns:
        The last row of metrics.
    """
    world = world or World()
    if recipe.steps_per_epoch:
        feed = FixedEpoch(feed, recipe.steps_per_epoch)
    steps, saved = len(feed), time.monotonic()
    _validate(recipe, steps, world)
    requested, recipe = recipe, _for_device(recipe, world, compile_on_cpu)

    model.to(world.device)
    ema = ModelEmaV3(model, decay=recipe.ema) if recipe.ema else None
    wrapped = wrap(model, world, recipe.sharded)
    state = make_state(recipe, model, world.device, ema)
    step_once: Step = make_step(recipe, wrapped, loss, state)

    with run.locked() if world.is_main else nullcontext():
        if world.is_main:
            defaults = dataclasses.asdict(Recipe(requested.model, requested.data))
            run.claim(dataclasses.asdict(requested), defaults)  # after the checks: no folder for an invalid recipe
        progress = Position(total=torch.zeros((), dtype=torch.float64, device=world.device))
        resumed_from = main_first(run.newest_checkpoint, world)  # rank 0 renames damaged ones
        if resumed_from is not None:
            progress = state.load(*resumed_from)
        if world.is_main:
            run.remove_rows_after(progress.step)
        outputs = Outputs(run, recipe, state, progress, world, log, about)
        captures = _can_be_captured(recipe, world)
        row: dict[str, Any] = (run.epochs() or [{}])[-1]

        if recipe.snapshots and resumed_from is None:
            outputs.weights("snapshots/epoch-0000", model)  # the initial weights, which `trajectory` needs

        def batches() -> Iterator[Batch]:
            with outputs.checkpoint_on_error():
                yield from feed.epoch(progress.epoch, progress.batch)

        def scores() -> dict[str, float]:
            """The metrics of the raw weights, and of the averaged weights if there are any."""
            raw = evaluate(model)
            averaged = evaluate(ema.module) if ema is not None else {}
            return raw | {f"ema_{name}": value for name, value in averaged.items()}

        def evaluated(row: dict[str, Any]) -> dict[str, Any]:
            """Add the metrics of the test set to the row of an epoch, if it is evaluated, and log it."""
            if row["epoch"] == recipe.epochs or row["epoch"] % recipe.evaluate_every == 0:
                with outputs.checkpoint_on_error(row):
                    row = row | scores()
            outputs.row(row)
            return row

        progress_bar = training_bar(show and world.is_main, steps * recipe.epochs, recipe.epochs, progress.step)
        with _stop_signal() as stop, progress_bar as bar:
            ended = resumed_from[1].get("row") if resumed_from is not None else None
            if ended is not None and any_rank(world.is_main and row.get("step") != ended["step"], world):
                row = evaluated(ended)  # the run ended between this checkpoint and the row of its epoch
            bar.epoch(row)
            while progress.epoch < recipe.epochs:
                model.train()
                began, done = time.monotonic(), 0
                for batch in batches():
                    rate = learning_rate(recipe.optimizer, progress.step, steps, recipe.epochs)
                    set_learning_rate(state.optimizer, rate)
                    if world.device.type == "cpu" or progress.batch == 0:
                        torch.manual_seed(step_seed(recipe.seed, progress.step, world.rank))
                    if captures:
                        step_once, captures = capture(step_once, batch, state.changing), False
                    value = step_once(batch)
                    progress.advance(value)
                    done += 1
                    if recipe.log_every and progress.step % recipe.log_every == 0:
                        at = {"step": progress.step, "epoch": progress.epoch + 1}
                        outputs.row({**at, "train_loss": float(value), "lr": rate})
                    bar.step(progress, done * recipe.batch_size / (time.monotonic() - began))
                    if outputs.due() and progress.batch < steps:
                        _check_finite(progress, run)
                        outputs.checkpoint()
                    if (world.size == 1 or progress.step % 10 == 0) and any_rank(stop.is_set(), world):
                        _check_finite(progress, run)
                        outputs.checkpoint()
                        raise Interrupted(f"stopped at step {progress.step}; run the same command to resume")

                if world.device.type == "cuda":
                    torch.cuda.synchronize()
                seconds = time.monotonic() - began
                _check_finite(progress, run)
                train_loss = _mean_loss(progress, world)
                progress.end_epoch()
                last = progress.epoch == recipe.epochs
                row = {
                    "step": progress.step,
                    "epoch": progress.epoch,
                    "train_loss": train_loss,
                    "lr": learning_rate(recipe.optimizer, progress.step - 1, steps, recipe.epochs),
                    "images_per_second": done * recipe.batch_size / seconds,
                }
                if progress.epoch in recipe.snapshots:
                    outputs.weights(f"snapshots/epoch-{progress.epoch:04d}", model)
                now = last or outputs.due() or any_rank(time.monotonic() - saved > _CHECKPOINT_PERIOD, world)
                if now:  # before the evaluation, which can fail
                    outputs.checkpoint(row)
                    saved = time.monotonic()
                row = evaluated(row)
                bar.epoch(row)
                if not now and any_rank(time.monotonic() - saved > _CHECKPOINT_PERIOD, world):  # a long evaluation
                    outputs.checkpoint()
                    saved = time.monotonic()

        if any_rank(row.get("epoch") != recipe.epochs, world):  # the last row, of an earlier version, is damaged
            row = {"step": progress.step, "epoch": progress.epoch, **scores()}
        outputs.weights("model", model)
        if ema is not None:
            outputs.weights("model_ema", ema.module)
        if any_rank(stop.is_set(), world):  # during the last evaluation
            raise Interrupted("stopped; the training run is complete")
        return row


def _validate(recipe: Recipe, steps: int, world: World) -> None:
    """Raise an error for a recipe that cannot be trained.

    Args:
        recipe: the recipe.
        steps: number of batches per epoch.
        world: the ranks that a batch is divided over.
    """
    if recipe.sharded and recipe.ema:
        raise VitlabError("averaged weights (ema) of a sharded model are not supported; set ema=0 or sharded=False")
    if recipe.optimizer.milestones and recipe.optimizer.schedule != "step":
        raise VitlabError(
            f"optimizer.milestones={recipe.optimizer.milestones!r} are for schedule='step', but the schedule is "
            f"{recipe.optimizer.schedule!r}; omit one of them"
        )
    if steps == 0:
        raise VitlabError(f"the training set is smaller than one batch of {recipe.batch_size}; lower batch_size")
    if recipe.batch_size % (world.size * recipe.accumulate):
        raise VitlabError(
            f"batch_size={recipe.batch_size} cannot be divided equally over {world.size} processes with "
            f"accumulate={recipe.accumulate}; change one of them"
        )


def _for_device(recipe: Recipe, world: World, compile_on_cpu: bool) -> Recipe:
    """Returns the recipe as it is run on this device: without `compile` on a CPU, unless it is requested."""
    if not recipe.compile or compile_on_cpu or world.device.type != "cpu":
        return recipe
    warnings.warn(
        "compile is ignored on a CPU; to compile anyway: --set compile=True, or compile_on_cpu=True in Python",
        stacklevel=3,
    )
    return dataclasses.replace(recipe, compile=False)


def _can_be_captured(recipe: Recipe, world: World) -> bool:
    """Whether a step can be captured in a CUDA graph.

    A graph cannot read the loss scale of float16 and the learning rate of SGD, which are stored on the host.
    """
    single_gpu = world.size == 1 and world.device.type == "cuda"
    return recipe.compile and single_gpu and recipe.precision != "float16" and recipe.optimizer.name == "adamw"


def _mean_loss(progress: Position, world: World) -> float:
    """The mean training loss of an epoch over all ranks (collective)."""
    sums = torch.stack([progress.total, torch.full_like(progress.total, progress.count)])
    total, count = sum_over_ranks(sums, world).tolist()
    return float(total / max(1.0, count))


def _check_finite(progress: Position, run: Run) -> None:
    if not math.isfinite(float(progress.total)):
        raise VitlabError(
            f"the loss is not finite before step {progress.step}; the last checkpoint in {run.folder / 'checkpoints'} "
            "is from an earlier step; try a lower optimizer.lr, more optimizer.warmup_epochs, optimizer.clip=1, or "
            "precision='float32'"
        )


# -- signals --------------------------------------------------------------------------------------------------------


@contextmanager
def _stop_signal() -> Iterator[threading.Event]:
    """Context with an event that SIGINT and SIGTERM set; the loop then saves and stops after the current step.

    An error after a signal is an interruption: the signal may have ended processes that load images, too.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    old = {number: signal.signal(number, lambda *_: event.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    except Exception as error:
        if not event.is_set():
            raise
        raise Interrupted("stopped; run the same command to resume") from error
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
