"""What the package holds, by name, read from its files: a listing imports no torch.

Parts and recipes are the names in a file's `__all__`; instruments, stress tests and experiments are one file each;
families stand in an adapter's `FAMILIES`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from functools import cache
from pathlib import Path
from typing import Any

from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import parse_call
from vitlab.core.recipe import Recipe

_PACKAGE = Path(__file__).resolve().parent.parent


def parts() -> dict[str, str]:
    """Every part and the module that holds it.

    >>> parts()["ContextBroadcast"]
    'vitlab.modules.context_broadcast'
    """
    return {name: _module(file) for file in _files("modules") for name in _literal(file, "__all__", [])}


def part(name: str) -> Any:
    """The class of a part, imported now."""
    known = parts()
    if name not in known:
        raise unknown("part", name, sorted(known))
    return getattr(importlib.import_module(known[name]), name)


def instruments() -> dict[str, str]:
    """Every instrument and the module that holds it."""
    return _carded("instruments")


def stress_tests() -> dict[str, str]:
    """Every stress test and the module that holds it.

    >>> stress_tests()["corruptions"]
    'vitlab.stress_tests.corruptions'
    """
    return _carded("stress_tests")


def recipes() -> dict[str, str]:
    """Every recipe and the module that holds it.

    >>> recipes()["quick"]
    'vitlab.recipes.quick'
    """
    return {name: _module(file) for file in _files("recipes") for name in _literal(file, "__all__", [])}


def recipe(text: str) -> Recipe:
    """The recipe that a name, with settings or without, stands for.

    >>> recipe("quick(epochs=3)").epochs
    3
    """
    name, settings = parse_call(text)
    known = recipes()
    if name not in known:
        raise unknown("recipe", name, sorted(known))
    make = getattr(importlib.import_module(known[name]), name)
    defaults = {key: item.default for key, item in inspect.signature(make).parameters.items()}
    for key, value in settings.items():
        if key not in defaults:
            raise unknown(f"setting of recipe {name}", key, defaults)
        settings[key] = _like(value, defaults[key], f"{key} of recipe {name}")
    made: Recipe = make(**settings)
    return made


def models() -> list[str]:
    """The modules that hold our own architectures."""
    return [_module(file) for file in _files("models")]


def published_sizes() -> dict[str, dict[str, Any]]:
    """What is published of the size of each of our models: the `PAPER` of its file.

    >>> published_sizes()["rvt_tiny_plus"]["exact_params"]
    10951336
    """
    return {name: entry for file in _files("models") for name, entry in _literal(file, "PAPER", {}).items()}


def families() -> dict[str, str]:
    """Every family that an adapter knows, with an example model."""
    found: dict[str, str] = {}
    for file in _files("adapters"):
        found.update(_literal(file, "FAMILIES", {}))
    return dict(sorted(found.items()))


def adapter_modules() -> list[str]:
    """The modules of all adapters."""
    return [_module(file) for file in _files("adapters") if _literal(file, "FAMILIES", {})]


def summary(module: str, name: str | None = None) -> str:
    """The first line of a module's docstring, or of a class or function in it, without importing it."""
    tree = _tree(_PACKAGE.parent / (module.replace(".", "/") + ".py"))
    node: Any = tree
    if name is not None:
        node = next((item for item in tree.body if getattr(item, "name", None) == name), tree)
    return (ast.get_docstring(node) or "").partition("\n")[0]


def card(module: str) -> dict[str, Any]:
    """What an instrument or a stress test says about itself: the fields of its `CARD`, without importing it.

    >>> card("vitlab.stress_tests.occlusion")["inputs"]
    'labelled images'
    """
    file = _PACKAGE.parent / (module.replace(".", "/") + ".py")
    for node in _tree(file).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CARD" and isinstance(node.value, ast.Call):
            try:
                return {str(item.arg): ast.literal_eval(item.value) for item in node.value.keywords}
            except ValueError:
                raise VitlabError(
                    f"the CARD in {file.name} must be of plain literals, so that it can be listed"
                ) from None
    raise VitlabError(f"{module} has no CARD")


def _like(value: Any, default: Any, what: str) -> Any:
    """The value, if it is of the kind of the default; a whole number will do for a fraction, a list for a tuple."""
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, tuple) and isinstance(value, list):
        return tuple(value)
    if type(value) is not type(default):
        raise VitlabError(f"{what} is {value!r}; it should be {type(default).__name__}, like {default!r}")
    return value


def _carded(folder: str) -> dict[str, str]:
    """The files that say what they measure; those without a card are what these share."""
    return {file.stem: _module(file) for file in _files(folder) if _assigns(file, "CARD")}


def _files(folder: str) -> list[Path]:
    return sorted(file for file in (_PACKAGE / folder).glob("*.py") if not file.name.startswith("_"))


def _module(file: Path) -> str:
    return f"vitlab.{file.parent.name}.{file.stem}"


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


def _assigns(file: Path, name: str) -> bool:
    return any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name for node in _tree(file).body)


def _literal(file: Path, name: str, default: Any) -> Any:
    """The literal that a file assigns to a name at its top level."""
    for node in _tree(file).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            try:
                return ast.literal_eval(node.value)  # type: ignore[attr-defined]
            except ValueError:
                raise VitlabError(f"{name} in {file.name} must be a plain literal, so that it can be listed") from None
    return default
