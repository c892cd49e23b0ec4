"""Optional TensorBoard events and Weights & Biases logs, in addition to `metrics.jsonl`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vitlab.core.errors import VitlabError


def tensorboard_log(folder: Path) -> Callable[[dict[str, Any]], None]:
    """Returns a function that writes rows of metrics as TensorBoard events to `folder/events`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise VitlabError(
            "TensorBoard is not installed; pip install 'vitlab[tracking]', or omit --tensorboard"
        ) from None
    writer: Any = None

    def log(row: dict[str, Any]) -> None:
        nonlocal writer
        if writer is None:  # created with the first row, so that a recipe that cannot run creates no folder
            writer = SummaryWriter(folder / "events")
        for key, value in row.items():
            if key not in ("step", "epoch"):
                writer.add_scalar(key, value, row["step"])
        writer.flush()

    return log


def wandb_log(folder: Path, project: str) -> Callable[[dict[str, Any]], None]:
    """Returns a function that sends rows of metrics to Weights & Biases; its files are written to `folder/wandb`.

    `WANDB_MODE=offline` writes the files only. A resumed run continues the same W&B run.

    Args:
        folder: the run folder.
        project: name of the W&B project.
    """
    try:
        import wandb
    except ImportError:
        raise VitlabError(
            "Weights & Biases is not installed; pip install 'vitlab[tracking]', or omit --wandb"
        ) from None
    run: Any = None

    def log(row: dict[str, Any]) -> None:
        nonlocal run
        if run is None:  # started with the first row, so that a recipe that cannot run creates nothing
            identity = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
            run = wandb.init(project=project, dir=str(folder), id=identity, name=folder.name, resume="allow")
        run.log({key: value for key, value in row.items() if key != "step"}, step=row["step"])

    return log
