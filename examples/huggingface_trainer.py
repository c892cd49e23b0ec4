"""Measure a model every N optimiser steps of the Trainer of Hugging Face.

    python examples/huggingface_trainer.py                       prints the numbers; seconds on a CPU, no download
    python examples/huggingface_trainer.py --log tensorboard     writes events to OUT/events
    python examples/huggingface_trainer.py --log wandb           writes an offline run of Weights & Biases to OUT/wandb

The callback also appends the numbers to `trainer.state.log_history`. Needs `pip install "vitlab[hf]" accelerate`. The
training set is small: a demonstration, not a result.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import vitlab

DATA = "scenes(train=256, test=64, objects=1)"  # generated images of 25 classes
SIZE: dict[str, Any] = {"image_size": 32, "patch_size": 8, "hidden_size": 48, "num_hidden_layers": 4}
SIZE |= {"num_attention_heads": 3, "intermediate_size": 96, "num_labels": 25}


def main() -> None:
    """Train for some steps, measure in between, and write a report."""
    options = _options()
    try:
        import accelerate  # noqa: F401  (the Trainer needs it)
        import transformers
    except ImportError as error:
        sys.exit(f"{error.name} is not installed; pip install 'vitlab[hf]' accelerate")
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**SIZE))
    normalisation = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
    training = vitlab.batches_for(model, DATA, 256, split="train", preprocessing=normalisation)
    held_out = vitlab.batches_for(model, DATA, 64, preprocessing=normalisation)
    examples = [
        {"pixel_values": image, "labels": label}
        for images, labels in training
        for image, label in zip(images, labels, strict=True)
    ]
    stored = options.out / "measurements"
    instruments = ["attention_entropy", "calibration"]
    log = _log(options.log, options.out)
    monitor = vitlab.Monitor(model, held_out, instruments, every=options.every, folder=stored, log=log)
    arguments = transformers.TrainingArguments(
        output_dir=str(options.out / "trainer"),
        max_steps=options.steps,
        per_device_train_batch_size=32,
        learning_rate=1e-3,
        logging_steps=options.every,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    callbacks = [vitlab.hugging_face_callback(monitor)]
    trainer = transformers.Trainer(model, arguments, train_dataset=examples, callbacks=callbacks)
    trainer.train()
    logged = [row for row in trainer.state.log_history if "attention_entropy/mean" in row]
    print(f"{len(logged)} measurements in trainer.state.log_history")
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
    parser.add_argument("--out", type=Path, default=Path("runs/huggingface_trainer"))
    parser.add_argument("--smoke", action="store_true", help="four steps, measured every second step")
    options = parser.parse_args()
    if options.smoke:
        options.steps, options.every = 4, 2
    return options


if __name__ == "__main__":
    main()
