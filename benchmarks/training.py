"""Throughput of the training loop relative to that of the bare training step, in one run.

Bare: the same model and loss on random tensors on the device, in the fastest form (on CUDA compiled and captured in a
graph). Whole: `train` over a device-resident set of CIFAR's size with the full DeiT-style augmentation, without
evaluation.

    python benchmarks/training.py [--models tiny,small] [--batches 512,1024] [--epochs 6] [--json PATH]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import timing
import torch

from vitlab import zoo
from vitlab.core.recipe import Augment, Recipe
from vitlab.core.store import Run
from vitlab.data.resident import Resident, TrainingBatch
from vitlab.recipes.vit_cifar import vit_small_cifar100, vit_tiny_cifar100
from vitlab.tasks.classification import make_loss
from vitlab.training.distributed import World
from vitlab.training.loop import train
from vitlab.training.state import make_state
from vitlab.training.step import capture, make_step

FULL = Augment(randaugment="rand-m9-n2-mstd0.5-inc1", erasing=0.25, mixup=0.8, cutmix=1.0)
RECIPES = {"tiny": vit_tiny_cifar100, "small": vit_small_cifar100}


def bare(recipe: Recipe, device: torch.device, seconds: float) -> float:
    """Returns the images per second of the step alone."""
    model = zoo.load(recipe.model, seed=0).to(device).train()
    state = make_state(recipe, model, device)
    step = make_step(recipe, model, make_loss(recipe.objective), state)
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
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        world = World(device=device)
        train(recipe, model, feed, make_loss(recipe.objective), lambda model: {}, run, world=world)
        return [row["images_per_second"] for row in run.metrics()][1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    cuda = torch.cuda.is_available()
    parser.add_argument("--models", default="tiny,small" if cuda else "tiny")
    parser.add_argument("--batches", default="512,1024" if cuda else "64")
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
            recipe = replace(RECIPES[name](), batch_size=size, epochs=options.epochs, augment=FULL)
            if not cuda:
                recipe = replace(recipe, precision="float32", compile=False)
            pixels = torch.randint(0, 256, (options.images, 3, 32, 32), dtype=torch.uint8, device=device)
            labels = torch.randint(0, 100, (options.images,), device=device)
            half = torch.bfloat16 if cuda else torch.float32
            feed = Resident(
                pixels, labels, (0.5,) * 3, (0.25,) * 3, FULL, size, dtype=half, compiled=cuda, seed=recipe.seed
            )
            alone = bare(recipe, device, options.seconds)
            rates = whole(recipe, feed, device)
            again = bare(recipe, device, options.seconds)
            fastest = max(alone, again)
            rate = statistics.median(rates)
            row = {
                "model": name,
                "batch": size,
                "bare": fastest,
                "whole": rate,
                "ratio": rate / fastest,
                "epochs": rates,
            }
            rows.append(row)
            print(
                f"ViT-{name} batch {size}: bare {fastest:,.0f}, whole {rate:,.0f} images/s, ratio {rate / fastest:.3f}"
            )
            timing.write(options.json, {"rows": rows})


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
