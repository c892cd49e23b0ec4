"""Tasks: each creates model, data, loss and metric for the training loop.

The module of a task has a function `run(recipe, out, *, root, device, show, log, compile_on_cpu)`, which trains with a
recipe in the folder `out` and returns the last row of metrics.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitlab.core import plugins
from vitlab.core.out_folder import check_writable
from vitlab.core.recipe import Recipe, change
from vitlab.core.settings import check_settings, check_value

__all__ = ["train", "train_task"]


def train(
    recipe: str | Recipe, out: str | Path, *, settings: Mapping[str, Any] | Sequence[str] = (), **options: Any
) -> dict[str, Any]:
    """Train a model with a recipe in the folder `out`; `vitlab.load(f"file/{out}")` loads the result.

    Args:
        recipe: a name with optional settings, for example `"vit_tiny_cifar100(part='cb')"`, or a `Recipe`.
        out: the run folder; a run that was interrupted is resumed.
        settings: settings of the recipe to replace, for example `{"optimizer.lr": 1e-4}`.
        options: `root` (folder of the data sets), `device`, `show` (a progress bar), `log` (called with each row of
            metrics), `compile_on_cpu`.

    Returns:
        The last row of metrics.
    """
    check_value("train", "recipe", recipe, str | Recipe)
    check_value("train", "out", out, str | Path)
    chosen = plugins.recipe(recipe) if isinstance(recipe, str) else recipe
    return train_task(change(chosen, settings), out, **options)


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
    options = check_settings("train", run, options)
    check_writable(out)
    row: dict[str, Any] = run(recipe, out, **options)
    return row
