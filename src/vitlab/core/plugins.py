"""The parts, recipes, instruments, stress tests, models, families and experiments, read without importing torch.

Parts and recipes are the names in a file's `__all__`. Each instrument and each stress test is one file with a `CARD`.
Families are the keys of an adapter's `FAMILIES`. Each experiment is one file in the folder of its paper.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from vitlab.core.annotations import convert
from vitlab.core.descriptions import attribute, built_in_data, origin, origin_of
from vitlab.core.errors import ExtensionError, VitlabError, unknown
from vitlab.core.expressions import parse_call
from vitlab.core.extensions import Extension, extensions, resolve, warn_once
from vitlab.core.recipe import Recipe
from vitlab.core.settings import check_settings
from vitlab.core.signatures import settings_of
from vitlab.core.source_files import assigns, decorated, literal

_PACKAGE = Path(__file__).resolve().parent.parent

#: The key of each paper, the first word of its experiments' names, and its folder in `experiments/`.
PAPERS = {"cb": "context_broadcasting", "hdvw": "how_vits_work", "tapadl": "robust_token_attention"}


def parts() -> dict[str, str]:
    """Every part and the module that defines it.

    >>> parts()["ContextBroadcast"]
    'vitlab.modules.context_broadcast'
    """
    return _with_extensions("parts")


def part(name: str) -> Any:
    """Import a part and return its class."""
    return _object("part", name, parts())


def losses() -> dict[str, str]:
    """Every loss and where it is. Those of extensions can be named in `objective.extra` of a recipe."""
    return _with_extensions("losses")


def loss(name: str) -> Any:
    """Import a loss of an extension and return the function; vitlab's own have settings of their own in a recipe."""
    return _object("loss of an extension", name, {key: each.reference for key, each in extensions("losses").items()})


def instruments() -> dict[str, str]:
    """Every instrument and the module that defines it."""
    return _with_extensions("instruments")


def stress_tests() -> dict[str, str]:
    """Every stress test and the module that defines it.

    >>> stress_tests()["corruptions"]
    'vitlab.stress_tests.corruptions'
    """
    return _with_extensions("stress_tests")


def recipes() -> dict[str, str]:
    """Every recipe and the module that defines it.

    >>> recipes()["quick"]
    'vitlab.recipes.quick'
    """
    return _with_extensions("recipes")


def recipe(text: str) -> Recipe:
    """Build a recipe from its name and optional settings.

    >>> recipe("quick(epochs=3)").epochs
    3
    """
    name, settings = parse_call(text)
    make = recipe_function(name)
    check_settings(name, make, settings, 0)
    declared = {each.name: each.annotation for each in settings_of(make)}
    made = make(**{key: convert(value, declared.get(key, Any)) for key, value in settings.items()})
    if not isinstance(made, Recipe):
        raise ExtensionError(
            f"recipe {name!r} of {origin('recipes', name)} returned {type(made).__name__}; expected a Recipe"
        )
    return made


def recipe_function(name: str) -> Any:
    """Import a recipe and return the function."""
    return _object("recipe", name, recipes())


def procedure(kind: str, given: Any, known: dict[str, str]) -> tuple[str, Any]:
    """Returns the name and the object of an instrument or stress test: a module or class with `CARD` and `measure`.

    Args:
        kind: `instrument` or `stress test`, for errors.
        given: its name, or the object itself, or a function `measure(model, batches, **settings)`.
        known: where each name is.
    """
    if not isinstance(given, str):
        given = _with_card(given) if isinstance(given, FunctionType) else given
        if not hasattr(given, "CARD") or not callable(getattr(given, "measure", None)):
            raise VitlabError(
                f"invalid {kind} of type {type(given).__name__}; "
                "expected a name, a function, or an object with CARD and measure"
            )
        return str(getattr(given, "__name__", type(given).__name__)).rpartition(".")[2], given
    if given not in known:
        raise unknown(kind, given, known)
    found = resolve(known[given])
    if not hasattr(found, "CARD") or not callable(getattr(found, "measure", None)):
        raise VitlabError(f"{kind} {given!r} ({known[given]}) has no CARD or no measure(model, batches, ...)")
    return given, found


def _with_card(function: FunctionType) -> Any:
    """Returns the module of an instrument or stress test for its `measure`; for others, a card for images is added."""
    module = sys.modules.get(function.__module__)
    if getattr(module, "measure", None) is function and hasattr(module, "CARD"):
        return module
    from vitlab.core.measurement import Card

    card = Card(title=function.__name__, paper="", cost="", inputs="images")
    return SimpleNamespace(__name__=function.__name__, CARD=card, measure=function)


def experiments() -> dict[str, str]:
    """Every experiment and the module that defines it, in the order of the papers; figures come before tables.

    >>> experiments()["cb_table_s16"]
    'vitlab.experiments.context_broadcasting.table_s16'
    """
    return _with_extensions("experiments")


def _in_order(stem: str) -> tuple[str, str, int, str]:
    """Sort key of the name of a table or figure: `fig_9` before `fig_10`, numbered ones before those of an appendix.

    >>> sorted(["fig_10", "table_1", "fig_s11", "fig_9", "fig_c1"], key=_in_order)
    ['fig_9', 'fig_10', 'fig_c1', 'fig_s11', 'table_1']
    """
    kind, _, label = stem.partition("_")
    letters = label.rstrip("0123456789")
    return kind, letters, int(label[len(letters) :] or 0), stem


def models() -> list[str]:
    """The modules of vitlab's own architectures, and those that extensions register with timm."""
    return [*map(_module, _files("models")), *(each.reference for each in added_models().values())]


def added_models() -> dict[str, Extension]:
    """The models that extensions add, by name in timm's registry."""
    return extensions("models", built_in("models"))


def assemblies() -> dict[str, str]:
    """Every assembly that a model expression can name, and the module that defines it.

    >>> assemblies()["upernet"]
    'vitlab.assemblies.upernet'
    """
    return {name: _module(file) for file in _files("assemblies") for name in literal(file, "__all__", [])}


def published_sizes() -> dict[str, dict[str, Any]]:
    """The published sizes of vitlab's models: the `PAPER` of each file.

    >>> published_sizes()["rvt_tiny_plus"]["exact_params"]
    10951336
    """
    return {name: entry for file in _files("models") for name, entry in literal(file, "PAPER", {}).items()}


def families() -> dict[str, str]:
    """Every family that an adapter supports, with an example model."""
    return {name: example for name, (example, _) in sorted(_families().items())}


def adapter_modules() -> list[str]:
    """The modules of all adapters."""
    own = [_module(file) for file in _files("adapters") if literal(file, "FAMILIES", {})]
    return [*(each.reference for each in _adapters().values()), *own]


def family_adapters() -> dict[str, str]:
    """The adapter of every family.

    >>> family_adapters()["vit"]
    'vitlab.adapters.timm_vit'
    """
    return {name: reference for name, (_, reference) in sorted(_families().items())}


def _adapters() -> dict[str, Extension]:
    return extensions("adapters", built_in("adapters"))


def _families() -> dict[str, tuple[str, str]]:
    """The example and the adapter of every family; a family of two adapters is an error that names both origins."""
    found = {
        name: (example, _module(file))
        for file in _files("adapters")
        for name, example in literal(file, "FAMILIES", {}).items()
    }
    for each in _adapters().values():
        for name, example in _families_of(each).items():
            if name in found:
                taken = origin_of(found[name][1]) or "vitlab"
                raise VitlabError(
                    f"families: the name {name!r} of {each.origin} is taken by {taken}; rename or remove one of them"
                )
            found[name] = (example, each.reference)
    return found


def _families_of(adapter: Extension) -> dict[str, str]:
    if adapter.source is None:  # registered in Python
        return dict(resolve(adapter.reference).FAMILIES)
    try:
        return dict(literal(adapter.source, "FAMILIES", {}, attribute(adapter.reference)))
    except (VitlabError, TypeError, ValueError) as error:
        warn_once(f"adapters: {adapter.name!r} of {adapter.origin} is skipped ({error})")
        return {}


def data_sets() -> dict[str, str]:
    """Every data set that an extension adds, and where it is."""
    return {name: each.reference for name, each in extensions("data").items()}


def figures() -> dict[str, str]:
    """Every kind of measurement that has a figure of its own, and where it is.

    >>> figures()["lesion"]
    'vitlab.reporting.figures.lesion'
    """
    return _with_extensions("figures")


def built_in(kind: str) -> dict[str, str]:
    """The names that vitlab itself has of a kind, and where they are.

    Args:
        kind: one of `extensions.KINDS`.

    >>> built_in("data")["camvid"], built_in("models")["upernet"]
    ('vitlab.data.segmentation_sets', 'vitlab.assemblies.upernet')
    """
    if kind in ("instruments", "stress_tests"):
        return _carded(kind)
    if kind == "experiments":
        return {
            f"{key}_{file.stem}": f"vitlab.experiments.{folder}.{file.stem}"
            for key, folder in PAPERS.items()
            for file in sorted(_files(f"experiments/{folder}"), key=lambda file: _in_order(file.stem))
        }
    if kind == "models":
        own = {name: _module(file) for file in _files("models") for name in decorated(file, "register_model")}
        return {**own, **assemblies()}
    if kind == "data":
        return {name: module for name, (module, _) in built_in_data().items()}
    if kind == "figures":
        return {file.stem: f"vitlab.reporting.figures.{file.stem}" for file in _files("reporting/figures")}
    if kind == "adapters":
        return {file.stem: _module(file) for file in _files("adapters")}
    folder = {"parts": "modules"}.get(kind, kind)
    return {name: _module(file) for file in _files(folder) for name in literal(file, "__all__", [])}


def _with_extensions(kind: str) -> dict[str, str]:
    """The names of vitlab, and those of extensions."""
    own = built_in(kind)
    return {**own, **{name: each.reference for name, each in extensions(kind, own).items()}}


def _object(kind: str, name: str, known: dict[str, str]) -> Any:
    """Import a class or function by name: an attribute of the module that the name is found in."""
    if name not in known:
        raise unknown(kind, name, sorted(known))
    found = resolve(known[name])
    thing = getattr(found, name) if isinstance(found, ModuleType) else found
    if not callable(thing):
        raise VitlabError(
            f"the {kind} {name!r} ({known[name]}) is of type {type(thing).__name__}; expected a class or function"
        )
    return thing


def _carded(folder: str) -> dict[str, str]:
    """The modules of a folder that have a `CARD`, by name."""
    return {file.stem: _module(file) for file in _files(folder) if assigns(file, "CARD")}


@cache
def _files(folder: str) -> tuple[Path, ...]:
    return tuple(sorted(file for file in (_PACKAGE / folder).glob("*.py") if not file.name.startswith("_")))


def _module(file: Path) -> str:
    return f"vitlab.{file.parent.name}.{file.stem}"
