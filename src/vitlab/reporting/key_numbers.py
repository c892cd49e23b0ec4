"""The key numbers of measurements as rows: one per number, with all models and their differences from the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vitlab.core.measurement import Measurement
from vitlab.reporting.comparison import BY_LABEL, compare, numbers
from vitlab.reporting.differences import Difference, Number
from vitlab.reporting.models import name_models
from vitlab.reporting.number_text import clearness, difference_text, unit_of, value_text
from vitlab.reporting.readings import in_words
from vitlab.reporting.rows import Row
from vitlab.reporting.sections import Section, label_models, sort

#: The most numbers of a kind without numbers by label.
_MOST = 3

#: Units that end the names of numbers.
_UNITS = ("nats", "image sides")


@dataclass(frozen=True)
class KeyNumber:
    """One number of all models.

    Args:
        title: the instrument or stress test.
        name: the number in words, with its unit.
        values: the number of each model as text, with half its 95 % interval if known.
        differences: of each model but the first, as text.
        clear: of each model but the first: `clear`, `unclear`, or empty if the noise is not known.
        unit: such as `%` or `nats`; empty if it has none.
        scale: factor from `numbers` and `gaps` to the unit.
        numbers: the number of each model that has it.
        gaps: the difference of each model but the first, if the models compare.
    """

    title: str
    name: str
    values: Mapping[str, str]
    differences: Mapping[str, str] = field(default_factory=dict)
    clear: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    scale: float = 1.0
    numbers: Mapping[str, Number] = field(default_factory=dict)
    gaps: Mapping[str, Difference] = field(default_factory=dict)


def key_numbers(measurements: Sequence[Measurement]) -> list[KeyNumber]:
    """Returns the most important numbers of measurements, the first model being the baseline.

    Args:
        measurements: of one or more models; repeats of a model are averaged.
    """
    named = name_models(measurements)
    labels = label_models(named.measurements)
    rows = []
    for section in sort(named.measurements, labels):
        if not section.shows_pictures:
            rows += _rows(section)
    return rows


def by_model(measurements: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    """Returns the measurements of each model, under the name that `key_numbers` gives it."""
    named = name_models(measurements)
    labels = label_models(named.measurements)
    return {label: [m for m in named.measurements if m.subject == subject] for subject, label in labels.items()}


def _rows(section: Section) -> list[KeyNumber]:
    by_label = {each.subject: numbers(each) for each in section.averaged()}
    differences = {(each.name, each.label): each for each in compare(section)}
    names = list(dict.fromkeys(name for own in by_label.values() for name in own))
    names = sorted(names, key=lambda name: name != "accuracy" or section.kind != "calibration")
    names = names[: None if section.kind in BY_LABEL else _MOST]
    rows = []
    for name in names:
        scale, unit = unit_of(section.kind, name)
        words = next(in_words(each, name) for each in section.averaged() if name in by_label[each.subject])
        title = Row(words, {}, unit=unit).title
        values = {label: value_text(own[name], scale) if name in own else "–" for label, own in by_label.items()}
        own = {label: differences[name, label] for label in by_label if (name, label) in differences}
        texts = {label: difference_text(each, scale) for label, each in own.items()}
        clear = {label: clearness(each).replace("unknown", "") for label, each in own.items()}
        numbers_of = {label: each[name] for label, each in by_label.items() if name in each}
        stated = next((each for each in _UNITS if title.endswith(f", {each}")), unit)
        rows.append(KeyNumber(section.title, title, values, texts, clear, stated, scale, numbers_of, own))
    return rows
