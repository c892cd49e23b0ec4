"""Measure a model during training in any loop: your own, timm's, Hugging Face's Trainer or Lightning.

monitor = Monitor(model, batches, ["attention_entropy"], every=500, log=print)
for step, batch in enumerate(loader, start=1):
    ...                                   # your training step
    monitor.after_step(step)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from torch import nn

from vitlab.core import plugins
from vitlab.core.bounds import Range
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_call, split_calls
from vitlab.core.out_folder import check_writable
from vitlab.core.settings import check_settings, check_value
from vitlab.instruments import measure
from vitlab.reporting.comparison import numbers
from vitlab.stress_tests import stress

__all__ = ["Monitor", "hugging_face_callback", "lightning_callback"]

#: Receives the numbers of a step: `{"step": 500, "attention_entropy/mean": 3.9}`.
Log = Callable[[dict[str, Any]], None]
_Steps = Annotated[int, Range(1, 10**12)]


class Monitor:
    """Runs instruments and stress tests on a model every N steps.

    Args:
        model: the model that is trained; it is measured in evaluation mode and restored to its mode.
        batches: images in the model's input format, such as `vitlab.batches_for(model, data, images)`; a few hundred
            images are enough for attention statistics.
        procedures: names of instruments and stress tests, optionally with settings, such as `lesion(images=32)`; as a
            list, or as one text separated by commas.
        every: number of steps between measurements.
        folder: where measurements are stored, as `step-000500/attention_entropy.json`; None to store none.
        log: called with the numbers of each step.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable[Any],
        procedures: str | Sequence[str] = ("attention_entropy",),
        *,
        every: int = 500,
        folder: str | Path | None = None,
        log: Log | None = None,
    ) -> None:
        check_value("Monitor", "every", every, _Steps)
        check_value("Monitor", "procedures", procedures, str | Sequence[str])
        check_value("Monitor", "folder", folder, str | Path | None)
        texts = split_calls(procedures) if isinstance(procedures, str) else list(procedures)
        if not texts:
            raise VitlabError("Monitor(procedures=[]): expected at least one instrument or stress test")
        if folder is not None:
            check_writable(folder, "give another folder")
        calls = [_call(text) for text in texts]
        names = [name for name, _ in calls]
        labels = [name if names.count(name) == 1 else text for text, name in zip(texts, names, strict=True)]
        self.model, self.batches = model, batches
        self.procedures = dict(zip(labels, calls, strict=True))
        self.every, self.log = every, log
        self.folder = None if folder is None else Path(folder)
        self._last = 0  # the last step that was measured

    def after_step(self, step: int) -> dict[str, Any] | None:
        """Measure the model if it is due; call this after each training step, on one rank only.

        Args:
            step: number of training steps so far, from 1.

        Returns:
            The numbers, or None if no measurement is due.
        """
        due = step != self._last and step % self.every == 0  # with gradient accumulation a step is given several times
        return self.measure(step) if due else None

    def measure(self, step: int) -> dict[str, Any]:
        """Measure the model now and return the numbers."""
        row: dict[str, Any] = {"step": step}
        self._last = step
        for label, (name, settings) in self.procedures.items():
            run = measure if name in plugins.instruments() else stress
            found = run(name, self.model, self.batches, name=f"step {step}", **settings)
            row |= {f"{label}/{value}": one.value for value, one in numbers(found).items()}
            if self.folder is not None:
                found.save(self.folder / f"step-{step:06d}" / re.sub(r"[^\w.-]+", "_", label).strip("_"))
        if self.log is not None:
            self.log(row)
        return row


def _call(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the settings of an instrument or stress test, checked."""
    name, settings = parse_call(text)
    known = {**plugins.instruments(), **plugins.stress_tests()}
    _, module = plugins.procedure("instrument or stress test", name, known)
    check_settings(name, module.measure, settings)
    return name, settings


def hugging_face_callback(monitor: Monitor) -> Any:
    """Returns a `transformers.TrainerCallback` that measures after every N optimiser steps of the Trainer.

    The numbers are appended to `trainer.state.log_history`. To send them elsewhere, give `log` to the monitor.
    """
    try:
        from transformers import TrainerCallback
    except ImportError:
        raise VitlabError("transformers is not installed; pip install 'vitlab[hf]'") from None

    class Callback(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Measures the model of the monitor."""

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """Measure if it is due."""
            if not state.is_world_process_zero:
                return
            row = monitor.after_step(state.global_step)
            if row is not None:
                state.log_history.append(row)

    return Callback()


def lightning_callback(monitor: Monitor) -> Any:
    """Returns a `lightning.pytorch.Callback` that measures after every N steps of `trainer.global_step`."""
    try:
        from lightning.pytorch import Callback
    except ImportError:
        raise VitlabError("Lightning is not installed; pip install lightning") from None

    class MonitorCallback(Callback):  # type: ignore[misc, unused-ignore]
        """Measures the model of the monitor."""

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            """Measure if it is due."""
            if trainer.is_global_zero:
                row = monitor.after_step(trainer.global_step)
                if row is not None and trainer.logger is not None:
                    trainer.logger.log_metrics({key: value for key, value in row.items() if key != "step"}, row["step"])

    return MonitorCallback()
