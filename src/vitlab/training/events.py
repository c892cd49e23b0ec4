"""Optional TensorBoard events, in addition to `metrics.jsonl`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vitlab.core.errors import VitlabError


def tensorboard_log(folder: Path) -> Callable[[dict[str, Any]], None]:
    """Returns a function that writes rows of metrics as TensorBoard events to `folder/events`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise VitlabError("TensorBoard is not installed; pip install tensorboard, or omit --tensorboard") from None
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
