"""The recipe of a run, which its file stores as text, compared with the recipe of an experiment's job."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from vitlab.core import plugins, recipe
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_model
from vitlab.core.recipe import Recipe

__all__ = ["effective", "same_recipe", "settings_of"]

#: Settings that do not change the trained weights.
_NO_EFFECT = ("seed", "evaluate_every", "checkpoint_every", "log_every", "snapshots")

#: Settings of other tasks than classification.
_OTHER_TASKS = ("segmentation", "detection")


def settings_of(text: str) -> dict[str, Any]:
    """Returns the settings in the text of a recipe; nothing is evaluated.

    >>> settings_of("Recipe(model='timm/x', augment=Augment(flip=0.5), order=(1, 2))")
    {'model': 'timm/x', 'augment': {'flip': 0.5}, 'order': (1, 2)}
    """
    try:
        found = _settings(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError) as error:
        raise VitlabError(f"{text[:60]!r}… is not the text of a recipe ({error}); run it again") from error
    if not isinstance(found, dict):
        raise VitlabError(f"{text[:60]!r} is not the text of a recipe; expected Recipe(key=value, …)")
    return found


def _settings(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        known = isinstance(node.func, ast.Name) and is_dataclass(getattr(recipe, node.func.id, None))
        if not known or node.args:
            raise ValueError(f"unexpected {ast.unparse(node)[:60]}")
        return {str(each.arg): _settings(each.value) for each in node.keywords}
    return ast.literal_eval(node)


def same_recipe(stored: Mapping[str, Any], other: Recipe) -> bool:
    """Whether a stored recipe trains the same network as another one, but for the seed.

    Settings that were added after the run count as the same where the other recipe has their default.
    """
    return effective(stored) == effective(asdict(other))


def effective(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that determine the trained weights, but for the seed, with defaults for those not given."""
    default = asdict(Recipe(settings["model"], settings["data"]))
    filled = _filled(settings, default)
    without = _NO_EFFECT + (_OTHER_TASKS if filled["task"] == "classification" else ())
    return {name: value for name, value in filled.items() if name not in without} | {"model": _model(filled["model"])}


def _filled(given: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _filled(given[name], value)
        if isinstance(value, Mapping) and isinstance(given.get(name), Mapping)
        else given.get(name, value)
        for name, value in default.items()
    } | {name: value for name, value in given.items() if name not in default}


def _model(text: str) -> tuple[Any, ...]:
    """A model expression with the default seams of its parts filled in."""
    found = parse_model(text)
    parts = [
        (part.name, dict(part.settings), part.at or plugins.part(part.name).default_seam, part.blocks)
        for part in found.parts
    ]
    return found.source, found.name, dict(found.settings), parts
