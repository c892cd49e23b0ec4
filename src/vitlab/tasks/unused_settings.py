"""Refuse settings of a recipe that a task does not use: they would be recorded, but have no effect."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Augment, Objective, Recipe


def check_unused_settings(
    recipe: Recipe, task: str, used: tuple[str, ...], required: dict[str, Any] | None = None
) -> None:
    """Raise if a setting of `augment` or `objective` that the task does not use is not its default.

    `objective.smoothing` may also be 0, the loss without it.

    Args:
        recipe: the training run.
        task: name of the task, for the error.
        used: the settings that have an effect, such as `augment.flip`.
        required: settings that need another value than their default, such as `augment.crop` and `none`.
    """
    required = required or {}
    for group, default in (("augment", Augment()), ("objective", Objective())):
        for name, value in asdict(default).items():
            key, given = f"{group}.{name}", getattr(getattr(recipe, group), name)
            expected = required.get(key, value)
            accepted = (expected, 0.0) if key == "objective.smoothing" else (expected,)
            if key not in used and given not in accepted:
                raise VitlabError(f"invalid {key}={given!r}: {task} has no such setting; set {key}={expected!r}")
