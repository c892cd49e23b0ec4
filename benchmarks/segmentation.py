"""Throughput of the segmentation loop relative to that of its bare training step, in one run.

Bare: the same model and loss on one fixed batch on the device. Whole: `train` over image and label pairs of CamVid's
size and number, with scaling, cropping, flips and colour jitter, without evaluation. UperNet with DeiT-Ti, random
weights; each with and without compilation.

    python benchmarks/segmentation.py [--epochs 4] [--json PATH]
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
from torch import Tensor

from vitlab import zoo
from vitlab.core.recipe import Recipe
from vitlab.core.store import Run
from vitlab.data.segmentation_feed import PairFeed
from vitlab.recipes.segmentation import camvid_upernet
from vitlab.tasks.segmentation import make_loss
from vitlab.training.distributed import World
from vitlab.training.loop import train
from vitlab.training.state import make_state
from vitlab.training.step import capture, make_step

MODEL = "vitlab/upernet(backbone='timm/deit_tiny_patch16_224', classes=11, size={size}, width=256, auxiliary_width=128)"


class RandomPairs:
    """Random images with random label maps, drawn once."""

    def __init__(self, number: int, size: tuple[int, int]) -> None:
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randint(0, 256, (number, 3, *size), dtype=torch.uint8, generator=generator)
        self.labels = torch.randint(0, 11, (number, *size), dtype=torch.uint8, generator=generator)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]


def bare(recipe: Recipe, batch: tuple[Tensor, ...], device: torch.device, seconds: float) -> float:
    """Returns the images per second of the step alone."""
    model = zoo.load(recipe.model, seed=0).to(device).train()
    state = make_state(recipe, model, device)
    step = make_step(recipe, model, make_loss(recipe.segmentation, recipe.objective), state)
    if recipe.compile and device.type == "cuda":
        step = capture(step, batch, state.changing)
    for _ in range(2):
        step(batch)
    rates = []
    for _ in range(5):
        _wait(device)
        start, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - start < seconds / 5:
            step(batch)
            count += 1
            if count % 10 == 0:
                _wait(device)
        _wait(device)
        rates.append(count * recipe.batch_size / (time.perf_counter() - start))
    return statistics.median(rates)


def whole(recipe: Recipe, feed: PairFeed, device: torch.device) -> list[float]:
    """Returns the images per second of the loop for each epoch except the first, which compiles."""
    model = zoo.load(recipe.model, seed=0)
    loss = make_loss(recipe.segmentation, recipe.objective)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        train(recipe, model, feed, loss, lambda model: {}, run, world=World(device=device))
        return [row["images_per_second"] for row in run.metrics()][1:]


def main() -> None:
    """Print one row for each form of the step, and write them to a file."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=367 if cuda else 8)
    parser.add_argument("--size", type=int, nargs=2, default=(360, 480) if cuda else (64, 96))
    parser.add_argument("--batch", type=int, default=8 if cuda else 4)
    parser.add_argument("--epochs", type=int, default=5 if cuda else 3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    device = torch.device("cuda" if cuda else "cpu")
    size = tuple(options.size)
    pairs = RandomPairs(options.images, size)
    rows: list[dict[str, Any]] = []
    for compiled in (False, True) if cuda else (False,):
        recipe = replace(
            camvid_upernet(epochs=options.epochs),
            model=MODEL.format(size=size),
            image_size=size,
            batch_size=options.batch,
            compile=compiled,
            precision="bfloat16" if cuda else "float32",
        )
        feed = PairFeed(
            pairs, size, recipe.segmentation, (0.5,) * 3, (0.25,) * 3, batch_size=options.batch, device=device
        )
        batch = next(iter(feed.epoch(0)))
        alone = bare(recipe, batch, device, options.seconds)
        rates = whole(recipe, feed, device)
        fastest = max(alone, bare(recipe, batch, device, options.seconds))
        rate = statistics.median(rates)
        row = {"compiled": compiled, "batch": options.batch, "bare": fastest, "whole": rate, "ratio": rate / fastest}
        rows.append({**row, "epochs": rates})
        print(
            f"compiled {compiled}: bare {fastest:,.1f}, whole {rate:,.1f} images/s, ratio {rate / fastest:.3f}",
            flush=True,
        )
        timing.write(options.json, {"rows": rows})


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
