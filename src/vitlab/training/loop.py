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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from timm.utils import ModelEmaV3
from torch import Tensor, nn

from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Recipe
from vitlab.core.store import Run, write_tensors
from vitlab.fitted import by_kind, parts
from vitlab.identity import weights_digest
from vitlab.training.distributed import World, add_up, agree, fill, whole, wrap
from vitlab.training.optimizer import learning_rate, make_optimizer, set_learning_rate
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
        show: whether to show a progress bar.
        log: called with each row of metrics, beside `metrics.jsonl`.
        about: what is written beside kept weights, such as the normalisation that they were trained with.

    Returns:
        The last row of metrics.
    """
    world = world or World()
    if recipe.sharded and recipe.ema:
        raise VitlabError("averaged weights (ema) of a sharded model are not supported; set ema=0 or sharded=False")
    if world.leads:
        run.claim(dataclasses.asdict(recipe))

    model.to(world.device)
    ema = ModelEmaV3(model, decay=recipe.ema) if recipe.ema else None
    wrapped = wrap(model, world, recipe.sharded)
    optimizer = make_optimizer(model, recipe.optimizer, world.device)
    step_once: Step = make_step(recipe, wrapped, loss, optimizer, ema, model)

    progress = _Position(total=torch.zeros((), dtype=torch.float64, device=world.device))
    found = run.newest_checkpoint()
    if found is not None:
        progress = _resume(found, model, ema, optimizer, world)
    if world.leads:
        run.forget_after(progress.step)
    captures = _can_be_captured(recipe, world)

    steps, saved = len(feed), time.monotonic()
    row: dict[str, Any] = (run.metrics() or [{}])[-1]
    if steps == 0:
        raise VitlabError(f"the training set is smaller than one batch of {recipe.batch_size}; lower batch_size")

    def save() -> None:
        tensors = _state(model, ema, optimizer)
        if world.leads:
            where = {"epoch": progress.epoch, "batch": progress.batch, "count": progress.count}
            run.save_checkpoint(progress.step, tensors, {**where, "total": float(progress.total)})

    def keep_weights(name: str, kept: nn.Module) -> None:
        """Write weights as a model that `file/PATH` loads."""
        tensors = {key: whole(tensor) for key, tensor in kept.state_dict().items()}
        if world.leads:
            digest = weights_digest(kept, tensors)
            made_of = {"model": builder_of(recipe.model), "weights": digest, "parts": by_kind(parts(kept))}
            made_of |= about or {}
            write_tensors(run.folder / f"{name}.safetensors", tensors, made_of)

    def due(step: int) -> bool:
        return bool(recipe.checkpoint_every) and step % recipe.checkpoint_every == 0

    def note(row: dict[str, Any]) -> None:
        if world.leads:
            run.log(row)
            if log is not None:
                log(row)

    with _stop_signal() as stop, _bar(show and world.leads, steps * recipe.epochs, progress.step) as tell:
        while progress.epoch < recipe.epochs:
            model.train()
            began, done = time.monotonic(), 0
            for batch in feed.epoch(progress.epoch, progress.batch):
                rate = learning_rate(recipe.optimizer, progress.step, steps, recipe.epochs)
                set_learning_rate(optimizer, rate)
                if world.device.type == "cpu" or progress.batch == 0:
                    torch.manual_seed(_mix(recipe.seed, progress.step, world.rank))
                if captures:
                    step_once, captures = capture(step_once, batch, lambda: _changing(model, ema, optimizer)), False
                value = step_once(batch)
                progress.advance(value)
                done += 1
                if recipe.log_every and progress.step % recipe.log_every == 0:
                    note({"step": progress.step, "epoch": progress.epoch, "train_loss": float(value), "lr": rate})
                tell(progress, done * recipe.batch_size / (time.monotonic() - began))
                if due(progress.step) and progress.batch < steps:
                    _check_finite(progress, run)
                    save()
                if (world.size == 1 or progress.step % 10 == 0) and agree(stop.is_set(), world):
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
                row |= evaluate(model)
                if ema is not None:
                    row |= {f"ema_{name}": value for name, value in evaluate(ema.module).items()}
            progress.total.zero_()
            progress.count = 0
            note(row)
            if progress.epoch in recipe.snapshots:
                keep_weights(f"snapshots/epoch-{progress.epoch:04d}", model)
            if last or due(progress.step) or agree(time.monotonic() - saved > _QUIET, world):
                save()
                saved = time.monotonic()

    keep_weights("model", model)
    if ema is not None:
        keep_weights("model_ema", ema.module)
    return row


@dataclasses.dataclass
class _Position:
    """Where a run is: the step, the epoch and batch that come next, and the losses of this epoch so far."""

    total: Tensor
    step: int = 0
    epoch: int = 0
    batch: int = 0
    count: int = 0

    def advance(self, value: Tensor) -> None:
        self.total += value.double()
        self.step, self.batch, self.count = self.step + 1, self.batch + 1, self.count + 1


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


def _mean_loss(progress: _Position, world: World) -> float:
    """The mean training loss of an epoch, over all processes."""
    sums = torch.stack([progress.total, torch.full_like(progress.total, progress.count)])
    total, count = add_up(sums, world).tolist()
    return float(total) / max(1.0, count)


def _check_finite(progress: _Position, run: Run) -> None:
    if not math.isfinite(float(progress.total)):
        raise VitlabError(
            f"the loss is not finite before step {progress.step}; the last checkpoint in {run.folder / 'checkpoints'} "
            "is from before. Try a lower optimizer.lr, more optimizer.warmup_epochs, optimizer.clip=1, or "
            "precision='float32'"
        )


# -- what a checkpoint holds ----------------------------------------------------------------------------------------


def _state(model: nn.Module, ema: ModelEmaV3 | None, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Everything that training changes, by name. All processes must call it."""
    tensors = {f"model.{name}": whole(tensor) for name, tensor in model.state_dict().items()}
    if ema is not None:
        tensors |= {f"ema.{name}": tensor for name, tensor in ema.module.state_dict().items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{key}.{name}"] = whole(value)
    return tensors


def _resume(
    found: tuple[dict[str, Tensor], dict[str, Any]],
    model: nn.Module,
    ema: ModelEmaV3 | None,
    optimizer: torch.optim.Optimizer,
    world: World,
) -> _Position:
    tensors, about = found
    for prefix, target in (("model.", model), ("ema.", ema.module if ema is not None else None)):
        if target is not None:
            for name, tensor in target.state_dict().items():
                if tensor.numel():  # markers of parts have nothing to fill, and are not in old checkpoints
                    fill(tensor, tensors[prefix + name])
    for name, parameter in model.named_parameters():
        for key in ("step", "exp_avg", "exp_avg_sq", "momentum_buffer"):
            value = tensors.get(f"optimizer.{key}.{name}")
            if value is not None:
                optimizer.state[parameter][key] = _like(value, parameter, key)
    total = torch.tensor(about["total"], dtype=torch.float64, device=world.device)
    return _Position(total, about["step"], about["epoch"], about["batch"], about["count"])


def _like(value: Tensor, parameter: Tensor, key: str) -> Tensor:
    if key == "step":
        return value.to(parameter.device) if parameter.device.type == "cuda" else value
    empty = torch.empty_like(parameter)
    fill(empty, value)
    return empty


def _changing(model: nn.Module, ema: ModelEmaV3 | None, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """All tensors that a step changes, in an order that only grows."""
    tensors = list(model.state_dict().values())
    tensors += list(ema.module.state_dict().values()) if ema is not None else []
    return tensors + [v for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]


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


@contextmanager
def _bar(show: bool, total: int, done: int) -> Iterator[Callable[[_Position, float], None]]:
    """A progress bar with rate, loss and time left; the loss is read at most once a second, since reading waits."""
    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[news]}"), TimeRemainingColumn()]
    with Progress(*columns, disable=not show, transient=True) as progress:
        task = progress.add_task("training", total=total, completed=done, news="")
        told = 0.0

        def tell(position: _Position, rate: float) -> None:
            nonlocal told
            if show and time.monotonic() - told > 1:
                told = time.monotonic()
                loss = float(position.total) / max(1, position.count)
                progress.update(task, completed=position.step, news=f"{rate:,.0f} images/s  loss {loss:.3f}")

        yield tell
