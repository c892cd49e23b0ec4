"""Measurements sorted for a page: a section for each kind, in it the repeats of each model, the baseline first."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import REPEAT_SETTINGS, average, distinct
from vitlab.reporting.words import kind_in_words

#: Kinds that are looked at: pictures and maps of single images, which have no mean and no difference.
PICTURES = {"attention_maps", "attention_view"}

#: Names longer than this are shortened: they stand in legends and tables.
LONGEST = 36


@dataclass(frozen=True)
class Section:
    """What was measured of one kind.

    Args:
        kind: the instrument.
        variant: what sets it apart from other sections of this kind: settings or data; empty where it is the only one.
        repeats: the measurements of each model by its label.
        has_baseline: whether the report's first model is among them; else there is nothing to hold the others against.
    """

    kind: str
    variant: str
    repeats: Mapping[str, Sequence[Measurement]]
    has_baseline: bool = True

    @property
    def title(self) -> str:
        """The kind in words, with the variant."""
        words = kind_in_words(self.kind)
        return f"{words} ({self.variant})" if self.variant else words

    def averaged(self) -> list[Measurement]:
        """One measurement for each model, named by its label; of pictures the first, of numbers all repeats together.

        Drawings show ±1.96 errors as 95 %: errors over R repeats are widened so that this is Student's interval.
        """
        return self._averaged

    @cached_property
    def _averaged(self) -> list[Measurement]:
        pictures = self.kind in PICTURES
        taken = [found[0] if pictures else average(found, student=True) for found in self.repeats.values()]
        return [replace(found, subject=label) for label, found in zip(self.repeats, taken, strict=True)]


def sort(measurements: Sequence[Measurement], labels: Mapping[str, str]) -> list[Section]:
    """The sections, in the order in which kinds were given.

    Measurements of one kind and model are repeats where they differ in seeds or in the part of a data set only. Other
    settings or another data set make another section, if some model was measured with both.

    Args:
        measurements: all of a report.
        labels: of the models, by subject, the baseline first.
    """
    sections = []
    for kind in dict.fromkeys(measurement.kind for measurement in measurements):
        found = [measurement for measurement in measurements if measurement.kind == kind]
        for variant, members in _variants(found).items():
            of = {label: [m for m in members if m.subject == subject] for subject, label in labels.items()}
            present = {label: distinct(each) for label, each in of.items() if each}
            sections.append(Section(kind, variant, present, next(iter(labels.values())) in present))
    return sections


def label_models(measurements: Sequence[Measurement]) -> dict[str, str]:
    """A short label for each subject, in the order of their first measurement, no two alike.

    >>> texts = ["timm/vit(depth=2)", "timm/deit_tiny(pretrained=True) | Part(at='mlp.out')"]
    >>> list(label_models([Measurement("k", text, {}, {}) for text in texts]).values())
    ['timm/vit(depth=2)', 'deit_tiny | Part']
    """
    labels: dict[str, str] = {}
    for subject in dict.fromkeys(measurement.subject for measurement in measurements):
        short = shorten(subject)
        choices = (short if count == 1 else f"{short} ({count})" for count in itertools.count(1))
        labels[subject] = next(label for label in choices if label not in labels.values())
    return labels


def shorten(text: str) -> str:
    """A long name without source and settings, then without its middle: the ends tell model and part apart.

    >>> shorten("timm/deit_tiny_patch16_224(pretrained=True) | ContextBroadcast(at='mlp.out')")
    'deit_tiny_patch16…| ContextBroadcast'
    """
    text = " ".join(text.split())
    if len(text) > LONGEST:
        text = re.sub(r"\([^()]*\)", "", re.sub(r"^\w+/", "", text))
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[: half - 1]}…{text[-half:]}"


def data_set(measurement: Measurement) -> str:
    """The data set without the part of it: `imagenet test[:1000] f7201085e8a5b9fd` is of `imagenet`."""
    return re.split(r" \w+\[", str(measurement.provenance.get("data", "")))[0]


def _variants(measurements: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    """Measurements of one kind by what sets them apart; all together where no model has two of them."""
    notes = [_notes(measurement) for measurement in measurements]
    differing = [key for key in dict.fromkeys(k for n in notes for k in n) if len({n.get(key) for n in notes}) > 1]
    found: dict[str, list[Measurement]] = {}
    for note, measurement in zip(notes, measurements, strict=True):
        told = ", ".join(f"{key}={note[key]}" for key in differing if note.get(key))
        found.setdefault(told, []).append(measurement)
    subjects = [subject for members in found.values() for subject in {member.subject for member in members}]
    return found if len(subjects) > len(set(subjects)) else {"": list(measurements)}


def _notes(measurement: Measurement) -> dict[str, str]:
    settings = {key: str(value) for key, value in measurement.settings.items() if key not in REPEAT_SETTINGS}
    return {**settings, "data": data_set(measurement)}
