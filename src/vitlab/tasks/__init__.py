"""Tasks: each creates model, data, loss and metric for the training loop.

The module of a task has a function `run(recipe, out, *, root, device, show, log, compile_on_cpu)`, which trains with a
recipe in the folder `out` and returns the last row of metrics.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from vitlab.core.recipe import Recipe

__all__ = ["train_task"]


def train_task(recipe: Recipe, out: str | Path, **options: Any) -> dict[str, Any]:
    """Train with a recipe; calls `run` of the module of its task.

    Args:
        recipe: the training run; its `task` is the name of a module of this package.
        out: the run folder; a run that was interrupted is resumed.
        options: see `tasks.classification.run`.

    Returns:
        The last row of metrics.
    """
    run = importlib.import_module(f"vitlab.tasks.{recipe.task}").run
    row: dict[str, Any] = run(recipe, out, **options)
    return row
