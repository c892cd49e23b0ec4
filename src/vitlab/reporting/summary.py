"""The summary of a report in sentences: the models, the data, and the largest differences between models."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from vitlab.core.measurement import Measurement
from vitlab.core.statistics import FEWEST
from vitlab.reporting.accuracy import MODELS, accuracy, is_accuracy
from vitlab.reporting.comparison import numbers
from vitlab.reporting.differences import Difference, Number
from vitlab.reporting.number_text import difference_text, unit_of, value_text
from vitlab.reporting.readings import in_words
from vitlab.reporting.sections import Section, data_set
from vitlab.reporting.words import joined, value_in_words

#: The maximum number of differences in the summary, so that it fits on one screen.
FINDINGS = 5


#: The data of measurements that store a digest instead of a name.
_DIGEST = re.compile(r"[0-9a-f]{16}\b")


@dataclass(frozen=True)
class Summary:
    """The sentences of a summary.

    Args:
        facts: the models, the data and the device.
        heading: the heading of the findings.
        findings: the accuracy and the largest differences.
        caution: the noise of the findings.
        warnings: such as untrained models.
    """

    facts: Sequence[str]
    heading: str
    findings: Sequence[str]
    caution: Sequence[str]
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Weights:
    """The weights of the models.

    Args:
        origins: the origin of the weights, by label of the model.
        untrained: labels of models with random weights.
        remarks: notes on models that share a name.
    """

    origins: Mapping[str, str] = field(default_factory=dict)
    untrained: Sequence[str] = ()
    remarks: Sequence[str] = ()


def summarise(
    labels: Sequence[str],
    sections: Sequence[Section],
    differences: Sequence[Difference],
    weights: Weights | None = None,
) -> Summary:
    """The summary of a report.

    Args:
        labels: labels of the models, the baseline first.
        sections: the sections of the report.
        differences: the differences of all models from the baseline.
        weights: the weights of the models.
    """
    weights = weights or Weights()
    warnings = [*_untrained(weights.untrained), *weights.remarks]
    measurements = [m for section in sections for repeats in section.repeats.values() for m in repeats]
    averaged = [each for section in sections for each in section.averaged()]
    facts = [_models(labels, len(sections)), *_data(measurements, averaged), *_origins(weights.origins)]
    accuracies = accuracy(sections)
    if len(labels) == 1:
        caution = [*_one_run(sections), _noise(sections)]
        return Summary(facts, "Key numbers", [*accuracies, *_key_numbers(sections)], caution, warnings)
    in_accuracy = [each for each in differences if is_accuracy(each.kind, each.name)]
    largest = strongest(each for each in differences if each not in in_accuracy)
    caution = [*_one_run(sections), *_count(differences), _noise(sections), *_different_data(sections)]
    findings = [*accuracies, *map(sentence, largest)]
    heading = _heading([*in_accuracy, *largest])
    heading = f"Accuracy, and {heading[:1].lower()}{heading[1:]}" if accuracies and largest else heading
    return Summary(facts, heading, findings, caution, warnings)


def strongest(differences: Iterable[Difference]) -> list[Difference]:
    """The largest differences relative to their noise, one per kind and model, or one per kind for many models.

    Differences with unknown noise follow, sorted relative to the baseline's number.
    """
    ranked = sorted(differences, key=_rank, reverse=True)
    many = len({each.label for each in ranked}) >= MODELS - 1
    best: dict[tuple[str, str], Difference] = {}
    for each in ranked:
        best.setdefault((each.title, "" if many else each.label), each)
    return list(best.values())[:FINDINGS]


def sentence(difference: Difference) -> str:
    """A difference in words.

    >>> sentence(Difference("entropy", "mean", "CB", Number(3.7, 0.01), Number(3.85, 0.01)))
    'Entropy, mean: 3.850 ± 0.020 for CB, 3.700 ± 0.020 for the baseline, +0.150 ± 0.028, larger than the noise.'
    >>> sentence(Difference("occlusion", "drop", "CB", Number(0.1), Number(0.05), "occlusion"))
    'Occlusion, mean drop of accuracy: 5 points for CB, 10 points for the baseline, −5 points; noise not known.'
    """
    d = difference
    scale, unit = unit_of(d.kind, d.name)
    after, points = (f" {unit}", " points") if unit else ("", "")
    text = (
        f"{_of(d.title, d.what or value_in_words(d.kind, d.name))}: {value_text(d.number, scale)}{after} for {d.label}"
    )
    text = f"{text}, {value_text(d.baseline, scale)}{after} for the baseline, {difference_text(d, scale)}{points}"
    return f"{text}; noise not known." if math.isnan(d.half_width) else f"{text}, {d.verdict}."


def _heading(shown: Sequence[Difference]) -> str:
    if not shown:
        return "Key numbers"
    if any(each.strength > 1 for each in shown):
        return "Largest differences relative to their noise"
    if all(math.isnan(each.strength) for each in shown):
        return "Largest differences, noise not known"
    return "No difference is larger than its noise; the largest"


def _models(labels: Sequence[str], kinds: int) -> str:
    measured = f"{kinds} kind{'s' if kinds > 1 else ''} of measurement"
    if len(labels) == 1:
        return f"One model, {labels[0]}, and {measured}."
    others = [*labels[1:]] if len(labels) <= 2 * MODELS else [*labels[1:MODELS], f"{len(labels) - MODELS} more"]
    return f"{len(labels)} models and {measured}. Baseline: {labels[0]}. Other models: {joined(others)}."


def _origins(origins: Mapping[str, str]) -> list[str]:
    if not origins:
        return []
    return [f"Weights: {'; '.join(f'{label}: {_weights_in_words(origin)}' for label, origin in origins.items())}."]


def _weights_in_words(origin: str) -> str:
    """The origin of weights in words.

    >>> _weights_in_words("random"), _weights_in_words("file: runs/cb/model.safetensors")
    ('random, not trained', 'file runs/cb/model.safetensors')
    """
    return "random, not trained" if origin == "random" else origin.replace(": ", " ", 1)


def _untrained(labels: Sequence[str]) -> list[str]:
    if not labels:
        return []
    verb, whose = ("has", "Its") if len(labels) == 1 else ("have", "Their")
    return [
        f"{joined(labels)} {verb} random weights and {'was' if len(labels) == 1 else 'were'} not trained. "
        f"{whose} numbers do not hold for a trained model."
    ]


def _one_run(sections: Sequence[Section]) -> list[str]:
    """A note that each model was trained once, unless there are repeats other than parts of the images."""
    several = any(len(each) > 1 and not _parts(each) for section in sections for each in section.repeats.values())
    if several:
        return []
    if max(len(section.repeats) for section in sections) == 1:
        return ["One training run: the variation between training seeds is not known."]
    return [
        "One training run each: intervals do not cover the variation between training seeds. A clear difference is one "
        "between these weights; other seeds may not show it."
    ]


def _data(measurements: Sequence[Measurement], averaged: Sequence[Measurement]) -> list[str]:
    """The data, the number of images, the device and the date, from provenance. Parts of the images are added up."""
    notes = [measurement.provenance for measurement in measurements]
    every = _distinct(data_set(measurement) for measurement in measurements)
    sets = [name for name in every if not _DIGEST.match(name)] or every
    images = _entries([measurement.provenance for measurement in averaged], "images")
    counts = sorted({int(n) for n in images if isinstance(n, (int, float))})
    devices = _distinct(map(str, _entries(notes, "device")))
    days = sorted({str(time)[:10] for time in _entries(notes, "time")})
    parts = [f"on {joined(sets)}"] if sets else []
    if counts:
        parts.append(f"with {counts[0]}{f' to {counts[-1]}' if len(counts) > 1 else ''} images each")
    parts += [f"on {joined(devices)}"] if devices else []
    if days:
        parts.append(f"on {_day(days[0])}" if len(days) == 1 else f"from {_day(days[0])} to {_day(days[-1])}")
    return [f"Measured {', '.join(parts)}."] if parts else ["Data and device are not known."]


def _key_numbers(sections: Sequence[Section]) -> list[str]:
    """The first number of each kind, those with known noise first."""
    found = []
    for section in sections:
        for measurement in section.averaged():
            table = numbers(measurement)
            first = [(name, number) for name, number in table.items() if not is_accuracy(section.kind, name)][:1]
            found += [(section, in_words(measurement, name), name, number) for name, number in first]
    found.sort(key=lambda each: math.isnan(each[3].error))
    return [
        f"{_of(section.title, words)}: {_with_unit(number, *unit_of(section.kind, name))}."
        for section, words, name, number in found[: FINDINGS + 1]
    ]


def _with_unit(number: Number, scale: float, unit: str) -> str:
    return f"{value_text(number, scale)}{f' {unit}' if unit else ''}"


def _count(differences: Sequence[Difference]) -> list[str]:
    """The number of comparisons, and how many are expected to exceed the noise by chance."""
    known = [each for each in differences if not math.isnan(each.strength)]
    if not differences:
        return ["Nothing is compared: no number was measured for both the baseline and another model."]
    if not known:
        return [f"Numbers compared: {len(differences)}. Their noise is not known."]
    clear = sum(each.strength > 1 for each in known)
    chance = f"about {max(1, round(0.05 * len(known)))} would by chance if no model differed"
    text = f"Numbers compared with known noise: {len(known)}, of which {clear} differ by more than the noise; {chance}."
    unknown = len(differences) - len(known)
    ending = f" Numbers compared with unknown noise: {unknown}." if unknown else ""
    return [f"{text} {_pairing(known)}{ending}"]


def _pairing(known: Sequence[Difference]) -> str:
    """How many differences are between models on the same images."""
    paired = sum(each.pairs > 0 for each in known)
    if not paired:
        return "Models are treated as independent, which is conservative if they were measured on the same images."
    which = "All of them" if paired == len(known) else f"{paired} of the {len(known)}"
    return f"{which} are paired differences on the same images or the same parts of the images."


def _noise(sections: Sequence[Section]) -> str:
    """The source of the noise: repeats, or the images only."""
    repeats = [each for section in sections for each in section.repeats.values()]
    most = max(map(len, repeats))
    if most == 1:
        return (
            "One measurement per kind and model: 95 % intervals, where given, are over images (normal), or over "
            "random runs of a corruption."
        )
    repeated = [each for each in repeats if len(each) > 1]
    parts = all(map(_parts, repeated))
    what = "parts of the images" if parts else "runs or seeds"
    own = "the instrument's interval over images (normal) is used if it is wider or the only one"
    if most < FEWEST:
        return f"Two repeats ({what}) give no interval, three do; {own}."
    return f"95 % intervals are Student's over up to {most} repeats ({what}); {own}."


def _parts(repeats: Sequence[Measurement]) -> bool:
    """Whether repeats are on different images: they do not show the variation between trainings."""
    return len({str(repeat.provenance.get("data")) for repeat in repeats}) == len(repeats)


def _different_data(sections: Sequence[Section]) -> list[str]:
    for section in sections:
        seen = {label: {str(m.provenance.get("data", "")) for m in each} for label, each in section.repeats.items()}
        if len({frozenset(each) for each in seen.values()}) > 1:
            return [
                "Not all models were measured on the same images: differences between models include those of the data."
            ]
    return []


def _rank(difference: Difference) -> tuple[bool, float]:
    known = not math.isnan(difference.strength)
    base = abs(difference.baseline.value)
    return known, difference.strength if known else abs(difference.value) / base if base else abs(difference.value)


def _of(title: str, name: str) -> str:
    return f"{title[:1].upper()}{title[1:]}, {name}"


def _entries(notes: Sequence[Mapping[str, object]], key: str) -> list[object]:
    """All entries with a key; lists of averaged repeats are flattened."""
    found = [note[key] for note in notes if note.get(key) not in (None, "")]
    return [each for item in found for each in (item if isinstance(item, list) else [item])]


def _day(text: str) -> str:
    """A date in words; other text is returned unchanged.

    >>> _day("2026-11-05"), _day("yesterday")
    ('5 November 2026', 'yesterday')
    """
    try:
        day = datetime.strptime(text, "%Y-%m-%d")
    except ValueError:
        return text
    return f"{day.day} {day:%B %Y}"


def _distinct(texts: Iterable[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]
