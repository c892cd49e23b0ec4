"""Measure a model every N steps of the Trainer of Lightning.

    python examples/lightning_training.py                       prints the numbers; seconds on a CPU, no download
    python examples/lightning_training.py --log tensorboard     writes events to OUT/events
    python examples/lightning_training.py --log wandb           writes an offline run of Weights & Biases to OUT/wandb

If the Trainer has a logger, the callback also sends the numbers there. Needs `pip install lightning`. The training set
is small: a demonstration, not a result.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timm
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import vitlab

DATA = "scenes(train=256, test=64, objects=1)"  # generated images of 25 classes
SIZE: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 4, "num_heads": 3, "num_classes": 25}


def main() -> None:
    """Train for some steps, measure in between, and write a report."""
    options = _options()
    try:
        import lightning.pytorch
    except ImportError:
        sys.exit("Lightning is not installed; pip install lightning")

    class Classifier(lightning.pytorch.LightningModule):
        """A timm model, the cross entropy and AdamW."""

        def __init__(self) -> None:
            super().__init__()
            self.model = timm.create_model("vit_tiny_patch16_224", **SIZE)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            """The loss of a batch."""
            images, labels = batch
            return cross_entropy(self.model(images), labels)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            """AdamW for all parameters."""
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    torch.manual_seed(0)
    module = Classifier()
    images, labels = zip(*vitlab.batches_for(module.model, DATA, 256, split="train"), strict=True)
    held_out = vitlab.batches_for(module.model, DATA, 64)
    loader = DataLoader(TensorDataset(torch.cat(images), torch.cat(labels)), batch_size=32, shuffle=True)
    stored = options.out / "measurements"
    instruments = ["attention_entropy", "calibration"]
    log = _log(options.log, options.out)
    monitor = vitlab.Monitor(module.model, held_out, instruments, every=options.every, folder=stored, log=log)
    trainer = lightning.pytorch.Trainer(
        max_steps=options.steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=options.out,
        callbacks=[vitlab.lightning_callback(monitor)],
    )
    trainer.fit(module, loader)
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
    parser.add_argument("--out", type=Path, default=Path("runs/lightning_training"))
    parser.add_argument("--smoke", action="store_true", help="four steps, measured every second step")
    options = parser.parse_args()
    if options.smoke:
        options.steps, options.every = 4, 2
    return options


if __name__ == "__main__":
    main()
