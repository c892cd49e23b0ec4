"""The parts, recipes, instruments, stress tests, models and families of the package, read without importing torch.

Parts and recipes are the names in a file's `__all__`. Each instrument and each stress test is one file with a `CARD`.
Families are the keys of an adapter's `FAMILIES`.
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
    """Every part and the module that defines it.

    >>> parts()["ContextBroadcast"]
    'vitlab.modules.context_broadcast'
    """
    return {name: _module(file) for file in _files("modules") for name in _literal(file, "__all__", [])}


def part(name: str) -> Any:
    """Import a part and return its class."""
    known = parts()
    if name not in known:
        raise unknown("part", name, sorted(known))
    return getattr(importlib.import_module(known[name]), name)


def instruments() -> dict[str, str]:
    """Every instrument and the module that defines it."""
    return _carded("instruments")


def stress_tests() -> dict[str, str]:
    """Every stress test and the module that defines it.

    >>> stress_tests()["corruptions"]
    'vitlab.stress_tests.corruptions'
    """
    return _carded("stress_tests")


def recipes() -> dict[str, str]:
    """Every recipe and the module that defines it.

    >>> recipes()["quick"]
    'vitlab.recipes.quick'
    """
    return {name: _module(file) for file in _files("recipes") for name in _literal(file, "__all__", [])}


def recipe(text: str) -> Recipe:
    """Build a recipe from its name and optional settings.

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
        settings[key] = _like(value, defaults[key], f"{name}: {key}")
    made: Recipe = make(**settings)
    return made


def models() -> list[str]:
    """The modules of vitlab's own architectures."""
    return [_module(file) for file in _files("models")]


def assemblies() -> dict[str, str]:
    """Every assembly that a model expression can name, and the module that defines it.

    >>> assemblies()["upernet"]
    'vitlab.assemblies.upernet'
    """
    return {name: _module(file) for file in _files("assemblies") for name in _literal(file, "__all__", [])}


def published_sizes() -> dict[str, dict[str, Any]]:
    """The published sizes of vitlab's models: the `PAPER` of each file.

    >>> published_sizes()["rvt_tiny_plus"]["exact_params"]
    10951336
    """
    return {name: entry for file in _files("models") for name, entry in _literal(file, "PAPER", {}).items()}


def families() -> dict[str, str]:
    """Every family that an adapter supports, with an example model."""
    examples: dict[str, str] = {}
    for file in _files("adapters"):
        examples.update(_literal(file, "FAMILIES", {}))
    return dict(sorted(examples.items()))


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
    """The fields of the `CARD` of an instrument or stress test, without importing it.

    >>> card("vitlab.stress_tests.occlusion")["inputs"]
    'labelled images'
    """
    file = _PACKAGE.parent / (module.replace(".", "/") + ".py")
    for node in _tree(file).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CARD" and isinstance(node.value, ast.Call):
            try:
                return {str(item.arg): ast.literal_eval(item.value) for item in node.value.keywords}
            except ValueError:
                raise VitlabError(f"invalid CARD in {file.name}; expected literals only, for `vitlab list`") from None
    raise VitlabError(f"{module} has no CARD")


def _like(value: Any, default: Any, what: str) -> Any:
    """Check the type of a value against the default; an int is converted to float, a list to a tuple."""
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, tuple) and isinstance(value, list):
        return tuple(value)
    if type(value) is not type(default):
        raise VitlabError(f"{what}={value!r} is invalid; expected {type(default).__name__}, for example {default!r}")
    return value


def _carded(folder: str) -> dict[str, str]:
    """The modules of a folder that have a `CARD`, by name."""
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
    """The literal assigned to a name at the top level of a file."""
    for node in _tree(file).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            try:
                return ast.literal_eval(node.value)  # type: ignore[attr-defined]
            except ValueError:
                raise VitlabError(f"invalid {name} in {file.name}; expected a literal, for `vitlab list`") from None
    return default
