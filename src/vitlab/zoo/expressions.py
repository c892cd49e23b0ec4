"""What a model expression names: the architecture, the file of its weights, and the recipe that trained it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitlab.checkpoints import read_weights
from vitlab.core import plugins
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import ModelExpression, parse_model
from vitlab.core.recipe import Recipe, stored_recipe
from vitlab.core.store import read_about

VILT = ("vitlab", "vilt")  # question answering: not an image classifier of timm's registry
_WEIGHTS = ("weights", "weights_entry", "pretrained")


def builder_of(expression: str) -> str:
    """The expression that builds the same architecture with random weights, without files or downloads."""
    parsed = parse_model(expression)
    if parsed.source == "file":
        file = weights_file(parsed.name)
        metadata = read_about(file) if file.suffix == ".safetensors" else read_weights(file)[1]
        return " | ".join([builder_expression(parsed.name, metadata, parsed.settings), *map(str, parsed.parts)])
    settings = {key: value for key, value in parsed.settings.items() if key not in _WEIGHTS}
    if is_assembly(parsed) and isinstance(settings.get("backbone"), str):
        settings["backbone"] = builder_of(settings["backbone"])
    if parsed.source == "timm" and "." in parsed.name:
        settings["pretrained"] = False
    return str(replace(parsed, settings=settings))


def recipe_of(expression: str) -> Recipe | None:
    """The recipe that trained a model, if the expression names a file or run folder of vitlab, else None."""
    parsed = parse_model(expression)
    file = parsed.name if parsed.source == "file" else parsed.settings.get("weights")
    if not isinstance(file, str) or weights_file(file).suffix != ".safetensors":
        return None
    metadata = read_about(weights_file(file))
    return stored_recipe(metadata["recipe"]) if "recipe" in metadata else None


def is_assembly(parsed: ModelExpression) -> bool:
    """Whether an expression names an assembly, a model around a backbone."""
    return parsed.source == "vitlab" and parsed.name in plugins.assemblies()


def weights_file(path: str) -> Path:
    """The path itself, or the last weights of a run folder."""
    inside = Path(path) / "model.safetensors"
    if Path(path).is_dir() and not inside.is_file():
        raise VitlabError(f"the run folder {path} has no model.safetensors; finish or resume its training")
    return inside if inside.is_file() else Path(path)


def builder_expression(path: str, metadata: dict[str, Any], settings: Mapping[str, Any] | None = None) -> str:
    """The expression in a vitlab file that builds its model, with changed settings."""
    if "model" not in metadata:
        raise VitlabError(
            f"{path} has weights but no model expression; name the model, for example timm/NAME(weights={path!r})"
        )
    expression = str(metadata["model"])
    parsed = parse_model(expression)
    if parsed.source == "file":
        raise VitlabError(
            f"{path} names another file as its model; expected an expression with the source of the architecture"
        )
    return str(replace(parsed, settings={**parsed.settings, **settings})) if settings else expression
