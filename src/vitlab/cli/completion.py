"""Shell completion. Names are read from files, without importing torch.

A name of an extension is a pair of the name and its origin, which shells show as help.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from vitlab.core import descriptions, plugins
from vitlab.core.expressions import SOURCES

#: A name, or a name and its help.
Name: TypeAlias = str | tuple[str, str]


def instruments(incomplete: str) -> list[Name]:
    """Instruments, separated by commas; the last one is completed.

    >>> instruments("lesion,attention_ent")
    ['lesion,attention_entropy']
    """
    return _after(",", incomplete, plugins.instruments(), "instruments")


def stress_tests(incomplete: str) -> list[Name]:
    """Stress tests, separated by commas; the last one is completed.

    >>> stress_tests("occlusion,corr")
    ['occlusion,corruptions']
    """
    return _after(",", incomplete, plugins.stress_tests(), "stress_tests")


def recipes(incomplete: str) -> list[Name]:
    """Recipes.

    >>> recipes("deit_d")
    ['deit_distilled']
    """
    return _after("", incomplete, plugins.recipes(), "recipes")


def experiments(incomplete: str) -> list[Name]:
    """Experiments.

    >>> experiments("cb_table_s16")
    ['cb_table_s16']
    """
    return _after("", incomplete, plugins.experiments(), "experiments")


def models(incomplete: str) -> list[Name]:
    """Sources of models and the models of extensions; after ` | `, the parts.

    >>> models("ti"), models("timm/vit_tiny_patch16_224 | TokenAw")
    (['timm/'], ['timm/vit_tiny_patch16_224 | TokenAwarePooling'])
    """
    if " | " in incomplete:
        return _after(" | ", incomplete, plugins.parts(), "parts")
    sources = _after("", incomplete, [f"{source}/" for source in SOURCES])
    added = {f"vitlab/{name}": each.origin for name, each in plugins.added_models().items()}
    return [*sources, *((name, origin) for name, origin in added.items() if name.startswith(incomplete))]


def kinds(incomplete: str) -> list[Name]:
    """The kinds of `vitlab list`.

    >>> kinds("fam")
    ['families']
    """
    from vitlab.cli.listing import KINDS  # imports rich, which only this needs

    return _after("", incomplete, KINDS)


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
