"""Measure a model every N steps of a plain training loop with timm's model, optimiser and schedule.

    python examples/timm_training_loop.py                       prints the numbers; seconds on a CPU, no download
    python examples/timm_training_loop.py --log tensorboard     writes events to OUT/events
    python examples/timm_training_loop.py --log wandb           writes an offline run of Weights & Biases to OUT/wandb

In a script of your own only three lines are new: `batches_for` (or your validation loader), `Monitor`, and
`monitor.after_step(step)`. The training set is small: a demonstration, not a result.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timm
import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch.nn.functional import cross_entropy

import vitlab

DATA = "scenes(train=256, test=64, objects=1)"  # generated images of 25 classes
SIZE: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 4, "num_heads": 3, "num_classes": 25}


def main() -> None:
    """Train for some steps, measure in between, and write a report."""
    options = _options()
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", **SIZE)
    training = list(vitlab.batches_for(model, DATA, 256, batch_size=32, split="train"))
    held_out = vitlab.batches_for(model, DATA, 64)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=options.steps, t_in_epochs=False)
    log = _log(options.log, options.out)
    stored = options.out / "measurements"
    instruments = ["attention_entropy", "calibration"]
    monitor = vitlab.Monitor(model, held_out, instruments, every=options.every, folder=stored, log=log)
    for step in range(1, options.steps + 1):
        images, labels = training[(step - 1) % len(training)]
        loss = cross_entropy(model.train()(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step_update(step)
        if step % options.every == 0:
            log({"step": step, "loss": loss.item()})
        monitor.after_step(step)
    paths = sorted(stored.glob("step-*/*.json"))
    print(vitlab.report([vitlab.Measurement.load(path) for path in paths], options.out / "report.html"))


def _log(kind: str, out: Path) -> Callable[[dict[str, Any]], None]:
    """Returns the function that receives the rows of numbers."""
    if kind == "tensorboard":
        return vitlab.tensorboard_log(out)
    if kind == "wandb":
        os.environ.setdefault("WANDB_MODE", "offline")
        out.mkdir(parents=True, exist_ok=True)
        return vitlab.wandb_log(out, "vitlab-examples")
    return print


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--every", type=int, default=20, help="steps between measurements")
    parser.add_argument("--log", choices=["print", "tensorboard", "wandb"], default="print")
    parser.add_argument("--out", type=Path, default=Path("runs/timm_training_loop"))
    parser.add_argument("--smoke", action="store_true", help="four steps, measured every second step")
    options = parser.parse_args()
    if options.smoke:
        options.steps, options.every = 4, 2
    return options


if __name__ == "__main__":
    main()
