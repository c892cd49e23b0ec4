"""Train networks sequentially in one process, with one compilation per variant."""

from __future__ import annotations

import gc
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from evidence.conditions import Job, recipe_of
from evidence.measuring import Extent, measure_network, plain
from vitlab import zoo
from vitlab.adapters import describe
from vitlab.adapters.wrappers import guard_hooks
from vitlab.core.batches import Batches
from vitlab.core.provenance import provenance
from vitlab.core.recipe import Objective, Recipe
from vitlab.core.store import Run
from vitlab.data.catalogue import open_data
from vitlab.data.images import DataSet, ImageArray, in_memory
from vitlab.tasks.attention_tape import AttentionTape, attention_tape
from vitlab.tasks.classification import Accuracy, batches, make_loss
from vitlab.training.distributed import World, init_distributed
from vitlab.training.loop import train

__all__ = ["Trainer", "check_data"]

Loss = Callable[[nn.Module, tuple[Tensor, ...]], Tensor]
Variant = tuple[str, Objective]


def check_data(data: str) -> None:
    """Raise an error if the images of a data expression are missing."""
    open_data(data, image_size=32)


@dataclass
class Trainer:
    """Trains and measures the networks of one process.

    Model and loss of a variant are kept, and new weights are written into the same tensors: torch then reuses the
    compiled step. Networks are measured as copies, so that no instrument touches a compiled model. Attention is
    recorded for one variant at a time, since a recorder acts on all that runs: the next variant closes it.

    Args:
        data: a data expression.
        settings: changes to every recipe, `key=value`.
        extent: how much is measured; None for nothing.
        failed: called with a name and a traceback where a measurement fails.
        device: `cpu` or `cuda`; by default CUDA where there is one.
    """

    data: str
    settings: Sequence[str]
    extent: Extent | None
    failed: Callable[[str, str], None]
    device: str | None = None
    _variants: dict[Variant, tuple[nn.Module, Loss, Any]] = field(default_factory=dict)
    _recorder: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        """Initialise the device and read the data."""
        guard_hooks()  # otherwise the first instrument would do it and invalidate compiled code
        torch._dynamo.config.recompile_limit = 256  # beyond the limit torch falls back to eager mode
        torch._dynamo.config.accumulated_recompile_limit = 1024
        self.world: World = init_distributed(self.device)
        whole = open_data(self.data, image_size=32)
        self._whole = replace(whole, train=in_memory(whole.to_train_on()), test=in_memory(whole.test))

    def run(self, job: Job) -> dict[str, Any]:
        """Train and measure one network; returns its results."""
        recipe = recipe_of(job, self.settings)
        data = _held_out(self._whole, job.condition.holdout)
        began = time.monotonic()
        rows, model, feed = self._train(recipe, data)
        trained = time.monotonic()
        found: dict[str, Any] = {}
        if self.extent is not None:
            copy = zoo.load(recipe.model, seed=0).to(self.world.device).eval()
            copy.load_state_dict(model.state_dict())
            images = _evaluation(feed, data)
            found = measure_network(copy, images, self.extent, lambda n, text: self.failed(f"{job.name} {n}", text))
        rates = [row["images_per_second"] for row in rows]
        gc.collect()  # frees the device memory of the captured graph
        return {
            "condition": job.condition.name,
            "arm": job.arm.name,
            "seed": job.seed,
            "holdout": job.condition.holdout,
            "recipe": repr(recipe),
            "epochs": recipe.epochs,
            "metrics": plain([row for row in rows if "top1" in row or row["epoch"] > recipe.epochs - 5]),
            "train_loss": plain([row["train_loss"] for row in rows]),
            "top1": plain(rows[-1]["top1"]),
            "top5": plain(rows[-1]["top5"]),
            "nll": plain(rows[-1]["loss"]),
            "measured": found,
            "images_per_second": round(statistics.median(rates[1:] or rates)),
            "seconds": {"training": round(trained - began, 2), "measuring": round(time.monotonic() - trained, 2)},
            "provenance": provenance(device=_chip(self.world), data=data.test.fingerprint),
        }

    def _train(self, recipe: Recipe, data: DataSet) -> tuple[list[dict[str, Any]], nn.Module, Any]:
        model, loss, tape = self._variant(recipe)
        model.load_state_dict(zoo.load(recipe.model, seed=recipe.seed).state_dict())
        feed = batches(recipe, data, self.world)
        folder = Path(tempfile.mkdtemp(prefix="evidence-"))
        try:
            run = Run(folder)
            test = Accuracy(data, feed, self.world, recipe, tape)
            train(recipe, model, feed, loss, test, run, world=self.world, compile_on_cpu=True)
            return [row for row in run.metrics() if "images_per_second" in row], model, feed
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _variant(self, recipe: Recipe) -> tuple[nn.Module, Loss, Any]:
        key = (recipe.model, recipe.objective)
        for other in [other for other, (_, _, tape) in self._variants.items() if tape is not None and other != key]:
            del self._variants[other]
            self._recorder.close()
        if key not in self._variants:
            model = zoo.load(recipe.model, seed=0).to(self.world.device)
            tape: AttentionTape | None = None
            if recipe.objective.diversification:
                anatomy = describe(model, recipe.image_size)
                tape = self._recorder.enter_context(attention_tape(recipe.objective, model, anatomy))
            self._variants[key] = model, make_loss(recipe.objective, None, tape), tape
        return self._variants[key]


def _held_out(data: DataSet, count: int) -> DataSet:
    """Replace the test images by the last training images, which are held out."""
    images = data.to_train_on()
    if not count:
        return data
    count = min(count, len(images) // 2)
    kept = len(images) - count
    return replace(data, train=images.subset(range(kept)), test=images.subset(range(kept, len(images))))


def _evaluation(feed: Any, data: DataSet) -> Batches:
    """Returns the test images on the device, normalised, in float32."""
    test = data.test
    assert isinstance(test, ImageArray)
    device = feed.images.device
    shown = replace(
        feed, images=test.images.to(device), labels=test.labels.to(device), dtype=torch.float32, compiled=False
    )
    return Batches(list(shown.evaluation(1000)), data.mean, data.std, data.classes, test.fingerprint)


def _chip(world: World) -> str:
    return torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "cpu"
