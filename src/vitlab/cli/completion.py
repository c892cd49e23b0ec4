"""Shell completion. Names are read from files, without importing torch.

A name of an extension is a pair of the name and its origin, which shells show as help.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from vitlab.core import descriptions, plugins
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import SOURCES
from vitlab.core.extensions import extensions
from vitlab.core.parameter_names import parameter_names
from vitlab.core.signatures import settings_of

#: A name, or a name and its help.
Name: TypeAlias = str | tuple[str, str]


def instruments(incomplete: str) -> list[Name]:
    """Instruments, separated by commas; the last one is completed.

    >>> instruments("lesion,attention_ent"), instruments("lesion,calibration(bi")
    (['lesion,attention_entropy'], ['lesion,calibration(bins='])
    """
    return _calls(incomplete, plugins.instruments(), "instrument")


def stress_tests(incomplete: str) -> list[Name]:
    """Stress tests, separated by commas; the last one is completed.

    >>> stress_tests("occlusion,corr"), stress_tests("occlusion(seed=1, gr")
    (['occlusion,corruptions'], ['occlusion(seed=1, grid='])
    """
    return _calls(incomplete, plugins.stress_tests(), "stress test")


def recipes(incomplete: str) -> list[Name]:
    """Recipes.

    >>> recipes("deit_d"), recipes("quick(epo")
    (['deit_distilled'], ['quick(epochs='])
    """
    return _calls(incomplete, plugins.recipes(), "recipe")


def experiments(incomplete: str) -> list[Name]:
    """Experiments.

    >>> experiments("cb_table_s16")
    ['cb_table_s16']
    """
    return _after("", incomplete, plugins.experiments(), "experiments")


def models(incomplete: str) -> list[Name]:
    """Sources of models and the models of extensions; after ` | `, the parts. Settings of a model import its library.

    >>> models("ti"), models("timm/vit_tiny_patch16_224 | TokenAw")
    (['timm/'], ['timm/vit_tiny_patch16_224 | TokenAwarePooling'])
    >>> models("timm/vit_tiny_patch16_224 | MultiKernelPooling(br")
    ['timm/vit_tiny_patch16_224 | MultiKernelPooling(branches=']
    """
    if " | " in incomplete:
        before, _, part = incomplete.rpartition(" | ")
        return _prefixed(f"{before} | ", _calls(part, plugins.parts(), "part"))
    if call := _OPEN_MODEL.match(incomplete):
        return _model_settings(incomplete, call["name"], call["inside"])
    sources = _after("", incomplete, [f"{source}/" for source in SOURCES])
    added = {f"vitlab/{name}": each.origin for name, each in plugins.added_models().items()}
    return [*sources, *((name, origin) for name, origin in added.items() if name.startswith(incomplete))]


def data(incomplete: str) -> list[Name]:
    """Data sets.

    >>> data("sce"), data("scenes(tr")
    (['scenes', 'scene_questions'], ['scenes(train='])
    """
    known = {name: module for name, (module, _) in descriptions.built_in_data().items()}
    known |= {name: each.reference for name, each in extensions("data", known).items()}
    return _calls(incomplete, known, "data set")


def kinds(incomplete: str) -> list[Name]:
    """The kinds of `vitlab list`.

    >>> kinds("fam")
    ['families']
    """
    from vitlab.cli.listing import KINDS  # imports rich, which only this needs

    return _after("", incomplete, KINDS)


_OPEN_CALL = re.compile(r"^(?P<before>.*?)(?P<name>\w+)\((?P<inside>[^()]*)$")
_OPEN_MODEL = re.compile(r"^(?P<name>\w+/[^()]+)\((?P<inside>[^()]*)$")
_KINDS = {  # of `extensions.KINDS`
    "instrument": "instruments",
    "stress test": "stress_tests",
    "recipe": "recipes",
    "part": "parts",
    "data set": "data",
}
_INJECTED = ("self", "dim", "layout", "attention", "kinds")  # as in `surgery.building`, which imports torch


def _calls(incomplete: str, known: Mapping[str, str], kind: str) -> list[Name]:
    """The names, or the settings of the last name if its parenthesis is open, or the values of a setting."""
    call = _OPEN_CALL.match(incomplete)
    if call is None or call["name"] not in known:
        return _after(",", incomplete, known, _KINDS[kind])
    last = call["inside"].rpartition(",")[2].lstrip()
    before = incomplete.removesuffix(last)
    key, equals, value = last.partition("=")
    if equals:
        return [f"{before}{key}={each}" for each in _choices(kind, call["name"], known, key) if each.startswith(value)]
    names = _setting_names(kind, call["name"], known[call["name"]])
    return [f"{before}{name}=" for name in names if name.startswith(last)]


def _setting_names(kind: str, name: str, reference: str) -> list[str]:
    """The names of settings, read from files."""
    if kind in ("instrument", "stress test"):
        return parameter_names(reference, "measure")[2:]
    if kind != "data set":
        return [each for each in parameter_names(reference, name) if each not in _INJECTED]
    module, function = descriptions.built_in_data().get(name, (reference, name))
    own = parameter_names(module, function)[1:]
    narrows = not module.endswith(("segmentation_sets", "question_catalogue"))
    shared = descriptions.narrowing_settings() if narrows else []
    return [*own, *(each for each in shared if each not in own)]


def _model_settings(incomplete: str, name: str, inside: str) -> list[Name]:
    """The settings of a model, or the values of one; none for a model of the hub, which completion does not open."""
    if name.startswith("hf/") and not Path(name.removeprefix("hf/")).is_dir():
        return []
    from vitlab.zoo import settings_of_model  # imports torch

    last = inside.rpartition(",")[2].lstrip()
    before, (key, equals, value) = incomplete.removesuffix(last), last.partition("=")
    try:
        settings = settings_of_model(name)
    except VitlabError:
        return []
    if equals:
        found = [repr(choice) for each in settings if each.name == key for choice in each.choices]
        return [f"{before}{key}={each}" for each in found if each.startswith(value)]
    return [f"{before}{each.name}=" for each in settings if each.name.startswith(last)]


def _choices(kind: str, name: str, known: Mapping[str, str], key: str) -> list[str]:
    """The valid values of a setting, if they are listed; this imports what declares them."""
    if kind in ("instrument", "stress test"):
        function = plugins.procedure(kind, name, dict(known))[1].measure
    elif kind == "data set":
        from vitlab.cli.settings_table import data_set_settings

        return [repr(choice) for each in data_set_settings()[name] if each.name == key for choice in each.choices]
    else:
        function = plugins.part(name) if kind == "part" else plugins.recipe_function(name)
    return [repr(choice) for each in settings_of(function) if each.name == key for choice in each.choices]


def _prefixed(before: str, names: Iterable[Name]) -> list[Name]:
    return [f"{before}{each}" if isinstance(each, str) else (f"{before}{each[0]}", each[1]) for each in names]


def _after(separator: str, incomplete: str, names: Iterable[str], kind: str = "") -> list[Name]:
    """The names that start with the last word, with the words before it prepended, and the origin of extensions.

    Args:
        separator: of the words.
        incomplete: the text so far.
        names: all names.
        kind: of the names, one of `extensions.KINDS`; empty if they are not of extensions.
    """
    before, used, last = incomplete.rpartition(separator) if separator else ("", "", incomplete)
    found: list[Name] = []
    for name in names:
        if name.startswith(last):
            text, origin = f"{before}{used}{name}", descriptions.origin(kind, name) if kind else ""
            found.append((text, origin) if origin else text)
    return found
