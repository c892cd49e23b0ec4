"""Group the measurements of a report into sections: one per kind, with the repeats of each model, baseline first."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import average, chosen, conditions, distinct
from vitlab.reporting.words import kind_in_words

#: Kinds that hold pictures and maps of single images, which are neither averaged nor compared.
PICTURES = {"attention_maps", "attention_view"}

#: Images of ImageNet-C, for measurements that do not store the number.
_FULL = 50_000

#: Names longer than this are shortened for legends and tables.
LONGEST = 36

#: Fewest characters of the name of a model with parts, and of a part.
_FEWEST = 8


@dataclass(frozen=True)
class Section:
    """The measurements of one kind.

    Args:
        kind: the instrument or stress test.
        variant: the settings or data that distinguish it from other sections of this kind; empty if it is the only one.
        repeats: the measurements of each model, by label.
        has_baseline: whether the report's first model is among them; without it nothing is compared.
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

    @property
    def shows_pictures(self) -> bool:
        """Whether the kind is one of `PICTURES`."""
        return self.kind in PICTURES

    def averaged(self) -> list[Measurement]:
        """One measurement per model, with its label as subject: the mean over repeats, or the first for pictures.

        Figures draw ±1.96 errors as 95 % bars. Errors over R repeats are scaled so that these are Student's interval.
        """
        return self._averaged

    @cached_property
    def _averaged(self) -> list[Measurement]:
        each = [
            repeats[0] if self.shows_pictures else average(repeats, student=True) for repeats in self.repeats.values()
        ]
        return [replace(measurement, subject=label) for label, measurement in zip(self.repeats, each, strict=True)]


def sort(measurements: Sequence[Measurement], labels: Mapping[str, str]) -> list[Section]:
    """The sections, in the order of the first measurement of each kind.

    Measurements of one kind and model are repeats if they differ only in the seed or the part of the images. Other
    settings, preprocessing or images make a second section if a model was measured with both.

    Args:
        measurements: all measurements of a report.
        labels: labels of the models by subject, the baseline first.
    """
    sections = []
    for kind in dict.fromkeys(measurement.kind for measurement in measurements):
        of_kind = [measurement for measurement in measurements if measurement.kind == kind]
        for variant, members in _variants(of_kind).items():
            by_label = {label: [m for m in members if m.subject == subject] for subject, label in labels.items()}
            present = {label: distinct(each) for label, each in by_label.items() if each}
            sections.append(Section(kind, variant, present, next(iter(labels.values())) in present))
    return sections


def label_models(measurements: Sequence[Measurement]) -> dict[str, str]:
    """A short unique label for each subject, in the order of their first measurement.

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
    """A name without source and settings if it is long, then without the ends of the model's name and of its parts.

    >>> shorten("timm/deit_tiny_patch16_224(pretrained=True) | ContextBroadcast(at='mlp.out')")
    'deit_tiny_patch1… | ContextBroadcast'
    """
    text = " ".join(text.split())
    if len(text) > LONGEST:
        text = re.sub(r"\([^()]*\)", "", re.sub(r"^\w+/", "", text))
    if len(text) <= LONGEST:
        return text
    model, *parts = text.split(" | ")
    room = LONGEST - len(" | ") * len(parts)
    width = max(_FEWEST, room - sum(map(len, parts)))
    widths = [width, *([(room - width) // len(parts)] * len(parts) if width == _FEWEST else map(len, parts))]
    if parts and min(widths) >= _FEWEST:
        return " | ".join(_begin(piece, most) for piece, most in zip((model, *parts), widths, strict=True))
    half = LONGEST // 2
    return f"{text[: half - 1]}…{text[-half:]}"


def _begin(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def data_set(measurement: Measurement) -> str:
    """The name of the data set without the subset: `imagenet` for `imagenet test[64 of 1000, evenly spaced] f720`."""
    return re.split(r" \w+\[", str(measurement.provenance.get("data", "")))[0]


def is_part(measurement: Measurement) -> bool:
    """Whether only a part of a published set was measured; corruptions of data other than ImageNet's are of no set."""
    data = data_set(measurement).lower()
    own_data = measurement.kind == "corruptions" and data != "" and "imagenet" not in data
    return bool(measurement.provenance.get("partial")) and not own_data


def images_missing(measurement: Measurement) -> str:
    """The number of images if the published set has more, such as `64 images, not the full 50,000`; else empty."""
    about = measurement.provenance
    if not is_part(measurement):
        return ""
    images, full = about.get("images", 0), about.get("official_images", _FULL)
    return f"{images:,} images, not the full {full:,}" if 0 < images < full else ""


def _variants(measurements: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    """Measurements of one kind grouped by the settings, preprocessing and images in which those of a model differ."""
    notes = [_notes(measurement) for measurement in measurements]
    by_subject: dict[str, list[dict[str, str]]] = {}
    for note, measurement in zip(notes, measurements, strict=True):
        by_subject.setdefault(measurement.subject, []).append(note)
    differing = [
        key
        for key in dict.fromkeys(key for note in notes for key in note)
        if any(len({note.get(key) for note in own}) > 1 for own in by_subject.values())
    ]
    groups: dict[str, list[Measurement]] = {}
    for note, measurement in zip(notes, measurements, strict=True):
        variant = ", ".join(f"{key}={note[key]}" for key in differing if note.get(key))
        groups.setdefault(variant, []).append(measurement)
    return groups


def _notes(measurement: Measurement) -> dict[str, str]:
    """The conditions of a measurement and its images."""
    about = {"data": data_set(measurement), "images chosen": chosen(measurement).selection}
    return {**{key: str(value) for key, value in conditions(measurement).items()}, **about}
