"""Fine-tune a model on small images that it resizes on the device, and measure it."""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vitlab
from evidence.measuring import plain
from vitlab import zoo
from vitlab.adapters.wrappers import guard_hooks
from vitlab.core.batches import Batches
from vitlab.core.errors import VitlabError
from vitlab.core.provenance import provenance
from vitlab.core.recipe import Recipe
from vitlab.core.store import Run
from vitlab.data.catalogue import open_data
from vitlab.data.images import ImageArray, in_memory
from vitlab.data.resident import Resident
from vitlab.recording.tape import record
from vitlab.tasks.classification import Accuracy, make_loss, prepared, with_classes
from vitlab.tasks.preprocessing import preprocessing_for
from vitlab.training.distributed import World, init_distributed
from vitlab.training.loop import train

__all__ = ["ARMS", "Resizing", "Tuner"]

#: The compared variants, as settings of the recipe `finetune`.
ARMS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "cb_s": {"part": "cb_s"},
    "tap": {"part": "tap"},
    "adl": {"diversification": 1.0},
}


class Resizing(nn.Module):
    """A model that resizes its images to its input size (bicubic).

    It is named `backbone`, so that the optimiser finds its layers.

    Args:
        backbone: the model.
        size: height and width of its input.
    """

    def __init__(self, backbone: nn.Module, size: tuple[int, int]) -> None:
        super().__init__()
        self.backbone, self.size = backbone, size

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, h, w) of any size -> logits."""
        logits: Tensor = self.backbone(F.interpolate(images, self.size, mode="bicubic"))
        return logits


@dataclass
class Tuner:
    """Fine-tunes and measures networks one after another; a compiled step is reused by runs of the same variant.

    Args:
        data: a data expression of small images.
        stress: settings of the stress test `corruptions`.
        device: `cpu` or `cuda`; by default CUDA where there is one.
    """

    data: str
    stress: Mapping[str, Any]
    device: str | None = None
    _models: dict[str, tuple[nn.Module, Any, Any]] = field(default_factory=dict)
    _recorder: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        """Initialise the device and read the data."""
        guard_hooks()  # otherwise the first instrument would do it and invalidate compiled code
        torch._dynamo.config.recompile_limit = 256
        torch._dynamo.config.accumulated_recompile_limit = 1024
        self.world: World = init_distributed(self.device)
        whole = open_data(self.data, image_size=32)
        self._whole = replace(whole, train=in_memory(whole.to_train_on()), test=in_memory(whole.test))

    def run(self, arm: str, recipe: Recipe) -> dict[str, Any]:
        """Fine-tune and measure one network; returns its results as plain data."""
        began = time.monotonic()
        recipe = replace(recipe, model=with_classes(recipe.model, len(self._whole.classes)))
        start = zoo.load(recipe.model, seed=recipe.seed)
        how = preprocessing_for(recipe, start, self._whole)
        data = prepared(self._whole, how)
        model, loss, tape = self._variant(arm, recipe)
        model.load_state_dict(Resizing(start, recipe.image_size).state_dict())
        if not isinstance(data.train, ImageArray) or not isinstance(data.test, ImageArray):
            raise VitlabError(f"{self.data} does not fit in memory; use a data set of small images")
        feed = self._feed(recipe, data.train, how.mean, how.std)
        with tempfile.TemporaryDirectory(prefix="finetune-") as folder:
            run = Run(Path(folder))
            test = Accuracy(data, feed, self.world, recipe, tape)
            train(recipe, model, feed, loss, test, run, world=self.world, compile_on_cpu=True)
            rows = [row for row in run.metrics() if "images_per_second" in row]
        trained = time.monotonic()
        copy = Resizing(start, recipe.image_size).to(self.world.device).eval()  # no instrument sees a compiled model
        copy.load_state_dict(model.state_dict())
        images = replace(feed, images=data.test.images, labels=data.test.labels, dtype=torch.float32, compiled=False)
        images = replace(images, images=images.images.to(self.world.device), labels=images.labels.to(self.world.device))
        batches = Batches(list(images.evaluation(500)), how.mean, how.std, data.classes, data.test.fingerprint)
        found = vitlab.stress("corruptions", copy, batches, name=arm, **self.stress)
        gc.collect()  # frees the device memory of the captured graph
        rates = [row["images_per_second"] for row in rows]
        kept = {name: found.values[name] for name in ("accuracy", "standard_error", "clean_accuracy")}
        axes = {name: found.axes[name] for name in found.dims["accuracy"]}
        return {
            "arm": arm,
            "seed": recipe.seed,
            "protocol": "part added at fine-tuning",
            "recipe": repr(recipe),
            "epochs": recipe.epochs,
            "top1": plain(rows[-1]["top1"]),
            "top5": plain(rows[-1]["top5"]),
            "nll": plain(rows[-1]["loss"]),
            "corrupted": plain(100 * float(found.values["accuracy"].mean())),
            "corruptions": plain({**kept, "axes": axes, "settings": found.settings}),
            "parts": plain(_learned(copy)),
            "metrics": plain(rows),
            "images_per_second": round(statistics.median(rates[1:] or rates)),
            "seconds": {"training": round(trained - began, 2), "measuring": round(time.monotonic() - trained, 2)},
            "provenance": provenance(device=_chip(self.world), data=data.test.fingerprint),
        }

    def _variant(self, arm: str, recipe: Recipe) -> tuple[nn.Module, Any, Any]:
        """Returns the model, loss and recorder of a variant; new weights are written into the same tensors."""
        if arm not in self._models:
            self._recorder.close()  # a recorder acts on all models that run
            self._models = {name: entry for name, entry in self._models.items() if entry[2] is None}
            backbone = zoo.load(recipe.model, seed=0)
            model = Resizing(backbone, recipe.image_size).to(self.world.device)
            tape = None
            if recipe.objective.diversification:
                recording = record(backbone, "attention", gradients=True, input_size=recipe.image_size)
                tape = self._recorder.enter_context(recording)
            self._models[arm] = model, _loss(recipe, tape), tape
        return self._models[arm]

    def _feed(self, recipe: Recipe, images: ImageArray, mean: Any, std: Any) -> Resident:
        on_cuda = self.world.device.type == "cuda"
        return Resident(
            images.images.to(self.world.device),
            images.labels.to(self.world.device),
            mean,
            std,
            recipe.augment,
            batch_size=recipe.batch_size,
            seed=recipe.seed,
            dtype=torch.bfloat16 if on_cuda and recipe.precision == "bfloat16" else torch.float32,
            compiled=recipe.compile and on_cuda,
        )


def _loss(recipe: Recipe, tape: Any) -> Any:
    """The objective; recorded maps are cleared before it returns, so that they are not outputs of the compiled step."""
    value = make_loss(recipe.objective, None, tape)
    if tape is None:
        return value

    def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        found = value(model, batch)
        tape.clear()
        return found

    return loss


def _learned(model: nn.Module) -> dict[str, float]:
    """The mean absolute value of every tensor that a part added, by name."""
    return {name: float(p.detach().abs().mean()) for name, p in model.named_parameters() if "vitlab_" in name}


def _chip(world: World) -> str:
    return torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "cpu"
