"""What a shell offers when the user presses Tab: names read from files, so that it takes no torch and no time."""

from __future__ import annotations

from collections.abc import Iterable

from vitlab.core import plugins
from vitlab.core.expressions import SOURCES


def instruments(incomplete: str) -> list[str]:
    """Instruments, the last of several that stand before it, with commas between them.

    >>> instruments("lesion,attention_ent")
    ['lesion,attention_entropy']
    """
    return _after(",", incomplete, plugins.instruments())


def stress_tests(incomplete: str) -> list[str]:
    """Stress tests, likewise.

    >>> stress_tests("occlusion,corr")
    ['occlusion,corruptions']
    """
    return _after(",", incomplete, plugins.stress_tests())


def recipes(incomplete: str) -> list[str]:
    """Recipes.

    >>> recipes("qui")
    ['quick']
    """
    return _after("", incomplete, plugins.recipes())


def models(incomplete: str) -> list[str]:
    """Where models come from, and behind a bar the parts that go into one.

    >>> models("ti"), models("timm/vit_tiny_patch16_224 | TokenAw")
    (['timm/'], ['timm/vit_tiny_patch16_224 | TokenAwarePooling'])
    """
    return _after(" | ", incomplete, plugins.parts() if " | " in incomplete else [f"{source}/" for source in SOURCES])


def kinds(incomplete: str) -> list[str]:
    """What can be listed.

    >>> kinds("fam")
    ['families']
    """
    from vitlab.cli.listing import KINDS  # with rich, which only this needs

    return _after("", incomplete, KINDS)


def _after(separator: str, incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that begin as the last word does, behind the words before it; none inside a word's settings."""
    before, cut, last = incomplete.rpartition(separator) if separator else ("", "", incomplete)
    return [f"{before}{cut}{name}" for name in names if name.startswith(last)]
