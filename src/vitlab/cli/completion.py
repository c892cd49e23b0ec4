"""Shell completion. Names are read from files, without importing torch."""

from __future__ import annotations

from collections.abc import Iterable

from vitlab.core import plugins
from vitlab.core.expressions import SOURCES


def instruments(incomplete: str) -> list[str]:
    """Instruments, separated by commas; the last one is completed.

    >>> instruments("lesion,attention_ent")
    ['lesion,attention_entropy']
    """
    return _after(",", incomplete, plugins.instruments())


def stress_tests(incomplete: str) -> list[str]:
    """Stress tests, separated by commas; the last one is completed.

    >>> stress_tests("occlusion,corr")
    ['occlusion,corruptions']
    """
    return _after(",", incomplete, plugins.stress_tests())


def recipes(incomplete: str) -> list[str]:
    """Recipes.

    >>> recipes("deit_d")
    ['deit_distilled']
    """
    return _after("", incomplete, plugins.recipes())


def experiments(incomplete: str) -> list[str]:
    """Experiments.

    >>> experiments("cb_table_s16")
    ['cb_table_s16']
    """
    return _after("", incomplete, plugins.experiments())


def models(incomplete: str) -> list[str]:
    """Sources of models; after ` | `, the parts.

    >>> models("ti"), models("timm/vit_tiny_patch16_224 | TokenAw")
    (['timm/'], ['timm/vit_tiny_patch16_224 | TokenAwarePooling'])
    """
    return _after(" | ", incomplete, plugins.parts() if " | " in incomplete else [f"{source}/" for source in SOURCES])


def kinds(incomplete: str) -> list[str]:
    """The kinds of `vitlab list`.

    >>> kinds("fam")
    ['families']
    """
    from vitlab.cli.listing import KINDS  # imports rich, which only this needs

    return _after("", incomplete, KINDS)


def _after(separator: str, incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that start with the last word, with the words before it prepended."""
    before, used, last = incomplete.rpartition(separator) if separator else ("", "", incomplete)
    return [f"{before}{used}{name}" for name in names if name.startswith(last)]
