"""The provenance of a report: each distinct entry once, with the measurements that it holds for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vitlab.core.measurement import Measurement
from vitlab.reporting.sections import Section

#: Entries that differ in every measurement; their range is given.
_RANGES = ("time", "seconds")

#: Settings of recipes in words.
_RECIPE_WORDS = {"objective, diversification": "objective, weight of the attention diversification loss (ADL)"}

#: Entries of a model.
_MODEL = {"expression": "expression", "origin": "weights", "weights": "digest of the weights", "parts": "parts"}


@dataclass(frozen=True)
class Entry:
    """One entry of the provenance.

    Args:
        name: such as `device`.
        values: each distinct value as text, with the measurements that it holds for; empty if it holds for all.
    """

    name: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Provenance:
    """The provenance of a report.

    Args:
        models: the entries of each model, by label.
        entries: the other entries.
        recipes: the settings of the training runs: those that differ between models, then the others as one entry.
    """

    models: Mapping[str, Mapping[str, str]]
    entries: Sequence[Entry]
    recipes: Sequence[Entry] = ()


def collect(sections: Sequence[Section], subjects: Mapping[str, str]) -> Provenance:
    """The provenance of all measurements of a report.

    Args:
        sections: the sections; repeats of a model are combined.
        subjects: the full name of each model, by label.
    """
    measured = [(section.title, each) for section in sections for each in section.averaged()]
    notes = [(title, each.subject, _notes(each)) for title, each in measured]
    names = dict.fromkeys(name for _, _, note in notes for name in note)
    entries = [_entry(name, notes) for name in names]
    return Provenance(_models(measured, subjects), entries, _recipes([each for _, each in measured]))


def _models(measured: Sequence[tuple[str, Measurement]], subjects: Mapping[str, str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for label, subject in subjects.items():
        models = [m.provenance.get("model") for _, m in measured if m.subject == label]
        model = next((each for each in models if isinstance(each, Mapping)), {})
        name = {"name": subject} if subject not in (label, model.get("expression")) else {}
        entries = {words: as_text(model[key]) for key, words in _MODEL.items() if model.get(key)}
        found[label] = {**name, **entries}
    return {label: entries for label, entries in found.items() if entries}


def _notes(measurement: Measurement) -> dict[str, str]:
    """All entries of a measurement as text; those of nested entries have the name of both."""
    about = {**measurement.provenance, "settings": dict(measurement.settings)}
    for elsewhere in ("model", "recipe"):
        about.pop(elsewhere, None)
    flat: dict[str, str] = {}
    for key, value in about.items():
        own = {f"{key}, {name}": each for name, each in value.items()} if isinstance(value, Mapping) else {key: value}
        flat |= {_words(name): as_text(each) for name, each in own.items() if each not in ({}, "", None, [])}
    return flat


def _recipes(measurements: Sequence[Measurement]) -> list[Entry]:
    """The settings of recipes that differ between models, each value with its models, then the others."""
    recipes = {m.subject: _settings(m.provenance["recipe"]) for m in measurements if "recipe" in m.provenance}
    names = dict.fromkeys(name for recipe in recipes.values() for name in recipe)
    same, differing = {}, []
    for name in names:
        models: dict[str, list[str]] = {}
        for label, recipe in recipes.items():
            models.setdefault(recipe.get(name, "not set"), []).append(label)
        if len(models) == 1:
            same[name] = next(iter(models))
        else:
            where = {text: ", ".join(labels) for text, labels in models.items()}
            differing.append(Entry(_RECIPE_WORDS.get(name, name), where))
    common = "; ".join(f"{name} {text}" for name, text in same.items())
    title = "the same for all" if len(recipes) > 1 else "recipe"
    return [*differing, *([Entry(title, {common: ""})] if common else [])]


def _settings(recipe: Any) -> dict[str, str]:
    """The settings of a recipe as text, those of groups with the name of the group, without groups of other tasks."""
    if not isinstance(recipe, Mapping):
        return {}
    groups = {"segmentation", "detection"} - {recipe.get("task")}
    flat: dict[str, str] = {}
    for key, value in recipe.items():
        if key not in groups:
            own = (
                {f"{key}, {name}": each for name, each in value.items()} if isinstance(value, Mapping) else {key: value}
            )
            flat |= {_words(name): as_text(each) or "none" for name, each in own.items()}
    return flat


def _entry(name: str, notes: Sequence[tuple[str, str, Mapping[str, str]]]) -> Entry:
    if name in _RANGES:
        times = sorted(time for *_, note in notes for time in note.get(name, "").split(", ") if time)
        both = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
        return Entry(name, {both: ""})
    values = dict.fromkeys(note[name] for *_, note in notes if name in note)
    return Entry(name, {value: _where(name, value, notes) for value in values})


def _where(name: str, value: str, notes: Sequence[tuple[str, str, Mapping[str, str]]]) -> str:
    """The measurements that have a value: empty for all, else kinds, with their models if not all have it."""
    own = [(title, label) for title, label, note in notes if note.get(name) == value]
    if len(own) == len(notes):
        return ""
    models = {label: [t for t, other in own if other == label] for _, label in own}
    titles = dict.fromkeys(title for title, _ in own)
    if all(len(each) == sum(other == label for _, other, _ in notes) for label, each in models.items()):
        return ", ".join(models)  # all measurements of these models
    without = dict.fromkeys(title for title, label, note in notes if label in models and note.get(name) != value)
    if len(titles) > 2 * len(without) and not set(without) & set(titles):
        but = f"all but {', '.join(without)}"
        return but if len(models) == len({label for _, label, _ in notes}) else f"{', '.join(models)} ({but})"
    parts = []
    for title in titles:
        labels = [label for other, label in own if other == title]
        whole = len(labels) == sum(other == title for other, _, _ in notes)
        parts.append(title if whole else f"{title} ({', '.join(labels)})")
    return ", ".join(parts)


def as_text(value: Any) -> str:
    """A provenance entry as text.

    >>> as_text({"crop": 0.9, "size": [32, 32]}), as_text(["a", "b", "a"])
    ('crop 0.9, size [32, 32]', 'a, b')
    """
    if isinstance(value, Mapping):
        return ", ".join(
            f"{_words(str(key))} {as_text(each)}" for key, each in value.items() if each not in ({}, [], "")
        )
    if isinstance(value, list) and value and all(isinstance(each, (str, Mapping)) for each in value):
        return ", ".join(dict.fromkeys(as_text(each) for each in value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _words(name: str) -> str:
    return name.replace("_", " ")
