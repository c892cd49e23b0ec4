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

__all__ = ["same_recipe", "settings_of"]

#: Settings that do not change the trained weights.
_NO_EFFECT = ("seed", "evaluate_every", "checkpoint_every", "log_every", "snapshots")


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
    default = asdict(Recipe(other.model, other.data))
    return _same(stored, asdict(other), default)


def _same(stored: Mapping[str, Any], own: Mapping[str, Any], default: Mapping[str, Any]) -> bool:
    if set(stored) - set(own):
        return False
    for name, value in own.items():
        if name in _NO_EFFECT:
            continue
        known = stored.get(name, default[name])
        if name == "model":
            equal = _model(known) == _model(value)
        elif isinstance(value, Mapping):
            equal = isinstance(known, Mapping) and _same(known, value, default[name])
        else:
            equal = known == value
        if not equal:
            return False
    return True


def _model(text: str) -> tuple[Any, ...]:
    """A model expression with the default seams of its parts filled in."""
    found = parse_model(text)
    parts = [
        (part.name, dict(part.settings), part.at or plugins.part(part.name).default_seam, part.blocks)
        for part in found.parts
    ]
    return found.source, found.name, dict(found.settings), parts
