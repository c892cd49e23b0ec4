"""TensorBoard events beside `metrics.jsonl`, for those who ask for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vitlab.core.errors import VitlabError


def tensorboard_log(folder: Path) -> Callable[[dict[str, Any]], None]:
    """A function that writes each row of metrics as TensorBoard events into `folder/events`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise VitlabError("TensorBoard is not installed; pip install tensorboard, or leave out --tensorboard") from None
    writer: Any = None

    def log(row: dict[str, Any]) -> None:
        nonlocal writer
        if writer is None:  # made with the first row: a recipe that cannot run leaves no folder behind
            writer = SummaryWriter(folder / "events")
        for key, value in row.items():
            if key not in ("step", "epoch"):
                writer.add_scalar(key, value, row["step"])
        writer.flush()

    return log
