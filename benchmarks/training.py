"""Throughput of the training loop relative to that of the bare training step, in one run.

Bare: the same model and loss on random tensors on the device, in the fastest form (on CUDA compiled and captured in a
graph). Whole: `train` over a device-resident set of CIFAR's size with the full DeiT-style augmentation, without
evaluation. Variants add parts and losses; their whole loop is also compared with that of the plain model.

    python benchmarks/training.py [--models tiny,small] [--batches 512,1024] [--variants plain,tap_adl] [--json PATH]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import timing
import torch
from torch import Tensor, nn

import vitlab
from vitlab import zoo
from vitlab.core.recipe import Augment, Recipe
from vitlab.core.store import Run
from vitlab.data.resident import Resident, TrainingBatch
from vitlab.recipes.vit_cifar import vit_small_cifar100, vit_tiny_cifar100
from vitlab.tasks.attention_tape import attention_tape
from vitlab.tasks.classification import make_loss
from vitlab.training.distributed import World
from vitlab.training.loop import train
from vitlab.training.state import make_state
from vitlab.training.step import capture, make_step

FULL = Augment(randaugment="rand-m9-n2-mstd0.5-inc1", erasing=0.25, mixup=0.8, cutmix=1.0)
RECIPES = {"tiny": vit_tiny_cifar100, "small": vit_small_cifar100}
#: variant: parts, weight of ADL
VARIANTS = {
    "plain": ("", 0.0),
    "cb": (" | ContextBroadcast", 0.0),
    "tap": (" | TokenAwarePooling", 0.0),
    "adl": ("", 1.0),
    "tap_adl": (" | TokenAwarePooling", 1.0),
}


@contextmanager
def loss_of(recipe: Recipe, model: nn.Module) -> Iterator[Callable[[nn.Module, tuple[Tensor, ...]], Tensor]]:
    """The loss of a recipe; attention is recorded if it has ADL."""
    with attention_tape(recipe.objective, model, vitlab.describe(model, recipe.image_size)) as tape:
        yield make_loss(recipe.objective, tape=tape)


def bare(recipe: Recipe, device: torch.device, seconds: float) -> float:
    """Returns the images per second of the step alone."""
    model = zoo.load(recipe.model, seed=0).to(device).train()
    with loss_of(recipe, model) as loss:
        return _rate(recipe, model, loss, device, seconds)


def _rate(recipe: Recipe, model: nn.Module, loss: Any, device: torch.device, seconds: float) -> float:
    state = make_state(recipe, model, device)
    step = make_step(recipe, model, loss, state)
    half = torch.bfloat16 if device.type == "cuda" else torch.float32
    images = torch.randn(recipe.batch_size, 3, *recipe.image_size, device=device, dtype=half)
    labels = torch.randint(0, 100, (recipe.batch_size,), device=device)
    batch = TrainingBatch(images, labels, labels.flip(0), torch.rand(recipe.batch_size, device=device))
    if device.type == "cuda":
        step = capture(step, batch, state.changing)
    for _ in range(3):
        step(batch)
    rates = []
    for _ in range(5):
        _wait(device)
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds / 5:
            for _ in range(20 if device.type == "cuda" else 1):
                step(batch)
                count += 1
            _wait(device)
        rates.append(count * recipe.batch_size / (time.perf_counter() - start))
    return statistics.median(rates)


def whole(recipe: Recipe, feed: Resident, device: torch.device) -> list[float]:
    """Returns the images per second of the loop for each epoch except the first, which compiles."""
    model = zoo.load(recipe.model, seed=0)
    with tempfile.TemporaryDirectory() as folder, loss_of(recipe, model) as loss:
        run = Run(Path(folder))
        world = World(device=device)
        train(recipe, model, feed, loss, lambda model: {}, run, world=world)
        return [row["images_per_second"] for row in run.metrics()][1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    cuda = torch.cuda.is_available()
    parser.add_argument("--models", default="tiny,small" if cuda else "tiny")
    parser.add_argument("--batches", default="512,1024" if cuda else "64")
    parser.add_argument("--variants", default="plain", help=f"of: {', '.join(VARIANTS)}")
    parser.add_argument("--images", type=int, default=50_000 if cuda else 512)
    parser.add_argument("--epochs", type=int, default=8 if cuda else 3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    device = torch.device("cuda" if cuda else "cpu")
    torch._dynamo.config.recompile_limit = 64
    rows: list[dict[str, Any]] = []
    for name in options.models.split(","):
        for size in map(int, options.batches.split(",")):
            for variant in options.variants.split(","):
                rows.append(row(options, device, name, size, variant))
                same = [each for each in rows if (each["model"], each["batch"]) == (name, size)]
                plain = next((each["whole"] for each in same if each["variant"] == "plain"), None)
                if plain:
                    rows[-1]["relative_to_plain"] = rows[-1]["whole"] / plain
                print(", ".join(f"{key} {value}" for key, value in rows[-1].items() if key != "epochs"), flush=True)
                timing.write(options.json, {"rows": rows})


def row(options: argparse.Namespace, device: torch.device, name: str, size: int, variant: str) -> dict[str, Any]:
    """Images per second of the bare step and of the whole loop of one model, batch size and variant."""
    cuda, (parts, weight) = device.type == "cuda", VARIANTS[variant]
    recipe = replace(RECIPES[name](), batch_size=size, epochs=options.epochs, augment=FULL)
    objective = replace(recipe.objective, diversification=weight)
    recipe = replace(recipe, model=recipe.model + parts, objective=objective)
    if not cuda:
        recipe = replace(recipe, precision="float32", compile=False)
    pixels = torch.randint(0, 256, (options.images, 3, 32, 32), dtype=torch.uint8, device=device)
    labels = torch.randint(0, 100, (options.images,), device=device)
    half = torch.bfloat16 if cuda else torch.float32
    feed = Resident(pixels, labels, (0.5,) * 3, (0.25,) * 3, FULL, size, dtype=half, compiled=cuda, seed=recipe.seed)
    alone = bare(recipe, device, options.seconds)
    rates = whole(recipe, feed, device)
    fastest = max(alone, bare(recipe, device, options.seconds))
    rate = statistics.median(rates)
    return {
        **{"model": name, "batch": size, "variant": variant, "bare": fastest},
        **{"whole": rate, "ratio": rate / fastest, "epochs": rates},
    }


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
