"""Progress bar of a training run on stderr: epoch, rate, loss, last accuracy and time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from vitlab.training.state import Position

#: The metrics that are shown, and their names.
_ACCURACIES = {"top1": "top-1", "miou": "mIoU", "box_ap50": "box AP50", "accuracy": "accuracy"}

_PERIOD = 1.0  # seconds between updates, because reading the loss synchronises with the device


@dataclass
class TrainingBar:
    """A bar over all steps of a run."""

    progress: Progress
    task: TaskID
    epochs: int
    accuracy: str = ""
    updated: float = 0.0

    def step(self, position: Position, rate: float) -> None:
        """Show a finished step, at most once per second.

        Args:
            position: the position of the run.
            rate: images per second.
        """
        if self.progress.disable or time.monotonic() - self.updated < _PERIOD:
            return
        self.updated = time.monotonic()
        loss = float(position.total) / max(1, position.count)
        status = f"epoch {position.epoch + 1}/{self.epochs}  {rate:,.0f} images/s  loss {loss:.3f}{self.accuracy}"
        self.progress.update(self.task, completed=position.step, status=status)

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Take the accuracy from a row of metrics, if it has one; it is shown with the next step."""
        for key, words in _ACCURACIES.items():
            if key in row:
                self.accuracy, self.updated = f"  {words} {row[key]:.1f} %", 0.0


@contextmanager
def training_bar(show: bool, steps: int, epochs: int, done: int = 0) -> Iterator[TrainingBar]:
    """Context with a progress bar on stderr; hidden if stderr is not a terminal.

    Args:
        show: whether to show the bar.
        steps: number of steps of the run, over all epochs.
        epochs: number of epochs of the run.
        done: steps that are already done.
    """
    console = Console(stderr=True)
    progress = Progress(
        *(TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[status]}"), TimeRemainingColumn()),
        console=console,
        disable=not show or not (console.is_terminal or console.is_jupyter),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # piped results must not be redirected to stderr
    )
    with progress:
        yield TrainingBar(progress, progress.add_task("training", total=steps, completed=done, status=""), epochs)
