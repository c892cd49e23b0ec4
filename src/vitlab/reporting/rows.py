"""The rows of a section's table: one number of all models, with the differences from the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vitlab.reporting.comparison import numbers
from vitlab.reporting.differences import Difference, Number
from vitlab.reporting.number_text import clearness, unit_of
from vitlab.reporting.readings import in_words
from vitlab.reporting.sections import Section


@dataclass(frozen=True)
class Row:
    """One number of all models.

    Args:
        what: the number in words.
        numbers: by label of the model.
        differences: from the baseline, by label of the model.
        unit: such as `%` or `nats`; empty if it has none.
        scale: the factor from the numbers to the unit.
        counts: of few samples, by label, such as `2 of 5 eigenvalues`.
        name: the name of the value; empty if it is computed from several.
    """

    what: str
    numbers: Mapping[str, Number]
    differences: Mapping[str, Difference] = field(default_factory=dict)
    unit: str = ""
    scale: float = 1.0
    counts: Mapping[str, str] = field(default_factory=dict)
    name: str = ""

    @property
    def title(self) -> str:
        """The number in words with its unit."""
        known = not self.unit or self.what.endswith(f", {self.unit}")
        return self.what if known else f"{self.what}, {self.unit}"

    @property
    def clearness(self) -> str:
        """`clear` if any model differs clearly, `unclear` if none does, `unknown` without a known noise; else empty."""
        found = {clearness(each) for each in self.differences.values()}
        return next((each for each in ("clear", "unclear", "unknown") if each in found), "")


def rows(section: Section, differences: Sequence[Difference], headlines: Iterable[Row | None] = ()) -> list[Row]:
    """The rows of a section: those of its figures in their order, then the other numbers of the measurements.

    Args:
        section: the measurements of one kind.
        differences: the result of `comparison.compare` of the section.
        headlines: the rows of its figures; None for figures without a number.
    """
    found = list({row.title: row for row in headlines if row is not None}.values())
    seen = {row.name for row in found if row.name}
    tables = {each.subject: numbers(each) for each in section.averaged()}
    for name in dict.fromkeys(name for table in tables.values() for name in table):
        if name not in seen:
            scale, unit = unit_of(section.kind, name)
            own = {label: table[name] for label, table in tables.items() if name in table}
            gaps = {each.label: each for each in differences if each.name == name}
            words = next(in_words(each, name) for each in section.averaged() if name in tables[each.subject])
            found.append(Row(_sentence_case(words), own, gaps, unit, scale, name=name))
    return found


def _sentence_case(text: str) -> str:
    """Text that starts with a capital letter, unless its first word is a symbol such as mCE."""
    return text[:1].upper() + text[1:] if text[1:2].islower() else text
