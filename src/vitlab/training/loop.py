"""The training loop: one function, read from top to bottom.

Nothing is lost on the way: whatever a step needs that is random is drawn from (seed, step), so that a run that was
killed and goes on from its last checkpoint does, on a CPU, bit for bit what an unbroken run does.
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
from typing import Any, Protocol

import torch
from timm.utils import ModelEmaV3
from torch import nn

from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Recipe
from vitlab.core.store import Run, write_tensors
from vitlab.fitted import by_kind, parts
from vitlab.identity import weights_digest
from vitlab.training.bar import training_bar
from vitlab.training.distributed import World, any_rank, full_tensor, sum_over_ranks, wrap
from vitlab.training.optimizer import learning_rate, set_learning_rate
from vitlab.training.state import Position, make_state
from vitlab.training.step import Batch, Loss, Step, capture, make_step
from vitlab.zoo import builder_of

_QUIET = 60.0  # seconds between the checkpoints at the ends of epochs


class Feed(Protocol):
    """Where batches come from: the same ones for the same epoch, from any batch on."""

    def __len__(self) -> int:
        """Batches of an epoch."""
        ...

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from `start_batch` on."""
        ...


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop, and has saved what it had."""


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
    """Train a model as a recipe says, from the run's newest checkpoint if it has one.

    Args:
        recipe: what to do.
        model: what to train, in place.
        feed: the batches.
        loss: (model, batch) -> scalar.
        evaluate: model -> metrics; called with the raw weights, and with the averaged ones where there are any.
        run: the folder for checkpoints, snapshots, metrics and the final weights.
        world: this process among others.
        show: whether to show a progress bar on stderr.
        log: called with each row of metrics, beside `metrics.jsonl`.
        about: what is written beside kept weights, such as the normalisation that they were trained with.
        compile_on_cpu: whether a recipe with `compile` is compiled on a CPU too, where it takes minutes to start.

    Returns:
        The last row of metrics.
    """
    world = world or World()
    steps, saved = len(feed), time.monotonic()
    _validate(recipe, steps, world)
    asked, recipe = recipe, _as_run(recipe, world, compile_on_cpu)

    model.to(world.device)
    ema = ModelEmaV3(model, decay=recipe.ema) if recipe.ema else None
    wrapped = wrap(model, world, recipe.sharded)
    state = make_state(recipe, model, world.device, ema)
    step_once: Step = make_step(recipe, wrapped, loss, state)

    with run.locked() if world.leads else nullcontext():
        if world.leads:
            run.claim(dataclasses.asdict(asked))  # only now: a recipe that cannot run leaves no folder behind
        progress = Position(total=torch.zeros((), dtype=torch.float64, device=world.device))
        found = run.newest_checkpoint()
        if found is not None:
            progress = state.load(*found)
        if world.leads:
            run.remove_rows_after(progress.step)
        captures = _can_be_captured(recipe, world)
        row: dict[str, Any] = (run.epochs() or [{}])[-1]

        def save() -> None:
            tensors = state.tensors()
            if world.leads:
                run.save_checkpoint(progress.step, tensors, state.settings(progress))

        def keep_weights(name: str, kept: nn.Module) -> None:
            """Write weights as a model that `file/PATH` loads."""
            tensors = {key: full_tensor(tensor) for key, tensor in kept.state_dict().items()}
            if world.leads:
                digest = weights_digest(kept, tensors)
                made_of: dict[str, Any] = {"model": builder_of(recipe.model), "compiled": recipe.compile}
                made_of |= {"weights": digest, "parts": by_kind(parts(kept)), **(about or {})}
                write_tensors(run.folder / f"{name}.safetensors", tensors, made_of)

        if recipe.snapshots and found is None:
            keep_weights("snapshots/epoch-0000", model)  # the initial weights, which `trajectory` needs

        def scores() -> dict[str, float]:
            found = evaluate(model)
            averaged = evaluate(ema.module) if ema is not None else {}
            return found | {f"ema_{name}": value for name, value in averaged.items()}

        def due(step: int) -> bool:
            return bool(recipe.checkpoint_every) and step % recipe.checkpoint_every == 0

        def note(row: dict[str, Any]) -> None:
            if world.leads:
                run.log(row)
                if log is not None:
                    log(row)

        shown = training_bar(show and world.leads, steps * recipe.epochs, recipe.epochs, progress.step)
        with _stop_signal() as stop, shown as bar:
            bar.epoch(row)
            while progress.epoch < recipe.epochs:
                model.train()
                began, done = time.monotonic(), 0
                for batch in feed.epoch(progress.epoch, progress.batch):
                    rate = learning_rate(recipe.optimizer, progress.step, steps, recipe.epochs)
                    set_learning_rate(state.optimizer, rate)
                    if world.device.type == "cpu" or progress.batch == 0:
                        torch.manual_seed(_mix(recipe.seed, progress.step, world.rank))
                    if captures:
                        step_once, captures = capture(step_once, batch, state.changing), False
                    value = step_once(batch)
                    progress.advance(value)
                    done += 1
                    if recipe.log_every and progress.step % recipe.log_every == 0:
                        at = {"step": progress.step, "epoch": progress.epoch + 1}
                        note({**at, "train_loss": float(value), "lr": rate})
                    bar.step(progress, done * recipe.batch_size / (time.monotonic() - began))
                    if due(progress.step) and progress.batch < steps:
                        _check_finite(progress, run)
                        save()
                    if (world.size == 1 or progress.step % 10 == 0) and any_rank(stop.is_set(), world):
                        _check_finite(progress, run)
                        save()
                        raise Interrupted(f"stopped at step {progress.step}; the same command goes on from there")

                if world.device.type == "cuda":
                    torch.cuda.synchronize()
                seconds = time.monotonic() - began
                _check_finite(progress, run)
                progress.epoch, progress.batch = progress.epoch + 1, 0
                last = progress.epoch == recipe.epochs
                row = {
                    "step": progress.step,
                    "epoch": progress.epoch,
                    "train_loss": _mean_loss(progress, world),
                    "lr": learning_rate(recipe.optimizer, progress.step - 1, steps, recipe.epochs),
                    "images_per_second": done * recipe.batch_size / seconds,
                }
                if last or progress.epoch % recipe.evaluate_every == 0:
                    row |= scores()
                progress.total.zero_()
                progress.count = 0
                note(row)
                bar.epoch(row)
                if progress.epoch in recipe.snapshots:
                    keep_weights(f"snapshots/epoch-{progress.epoch:04d}", model)
                if last or due(progress.step) or any_rank(time.monotonic() - saved > _QUIET, world):
                    save()
                    saved = time.monotonic()

        if any_rank(row.get("epoch") != recipe.epochs, world):  # a finished run whose last line of metrics is damaged
            row = {"step": progress.step, "epoch": progress.epoch, **scores()}
        keep_weights("model", model)
        if ema is not None:
            keep_weights("model_ema", ema.module)
        return row


def _validate(recipe: Recipe, steps: int, world: World) -> None:
    """Refuse a recipe that cannot be trained.

    Args:
        recipe: the recipe.
        steps: batches of an epoch.
        world: over which a batch is divided.
    """
    if recipe.sharded and recipe.ema:
        raise VitlabError("averaged weights (ema) of a sharded model are not supported; set ema=0 or sharded=False")
    if steps == 0:
        raise VitlabError(f"the training set is smaller than one batch of {recipe.batch_size}; lower batch_size")
    if recipe.batch_size % (world.size * recipe.accumulate):
        raise VitlabError(
            f"batch_size={recipe.batch_size} cannot be divided equally over {world.size} processes with "
            f"accumulate={recipe.accumulate}; change one of them"
        )


def _as_run(recipe: Recipe, world: World, compile_on_cpu: bool) -> Recipe:
    """The recipe without what this device is not given: compiling on a CPU unless it is asked for."""
    if not recipe.compile or compile_on_cpu or world.device.type != "cpu":
        return recipe
    warnings.warn(
        "the step is not compiled on a CPU unless that is asked for: --set compile=True, in Python compile_on_cpu=True",
        stacklevel=3,
    )
    return dataclasses.replace(recipe, compile=False)


def _mix(*numbers: int) -> int:
    """One seed from several numbers (a multiplicative hash, so that neighbours are far apart)."""
    value = 0
    for number in numbers:
        value = (value * 6364136223846793005 + number + 1442695040888963407) % (1 << 63)
    return value


def _can_be_captured(recipe: Recipe, world: World) -> bool:
    """A graph keeps what it was captured with: float16's scale and SGD's learning rate live on the host."""
    alone = world.size == 1 and world.device.type == "cuda"
    return recipe.compile and alone and recipe.precision != "float16" and recipe.optimizer.name == "adamw"


def _mean_loss(progress: Position, world: World) -> float:
    """The mean training loss of an epoch, over all processes."""
    sums = torch.stack([progress.total, torch.full_like(progress.total, progress.count)])
    total, count = sum_over_ranks(sums, world).tolist()
    return float(total) / max(1.0, count)


def _check_finite(progress: Position, run: Run) -> None:
    if not math.isfinite(float(progress.total)):
        raise VitlabError(
            f"the loss is not finite before step {progress.step}; the last checkpoint in {run.folder / 'checkpoints'} "
            "is from before. Try a lower optimizer.lr, more optimizer.warmup_epochs, optimizer.clip=1, or "
            "precision='float32'"
        )


# -- around the loop ------------------------------------------------------------------------------------------------


@contextmanager
def _stop_signal() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set: the loop saves and stops after the step in flight."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    old = {number: signal.signal(number, lambda *_: event.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
