"""The first screen of a report in plain sentences: which models, on which data, and what differs most between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from vitlab.core.measurement import Measurement
from vitlab.reporting.accuracy import MODELS, accuracy, tells_accuracy
from vitlab.reporting.comparison import numbers
from vitlab.reporting.judging import Difference, Number
from vitlab.reporting.sections import Section, data_set
from vitlab.reporting.words import value_in_words

#: How many differences the summary names: it is to fit on one screen.
FINDINGS = 5


@dataclass(frozen=True)
class Summary:
    """Sentences.

    Args:
        facts: what was measured.
        heading: of the findings.
        findings: the few that stand out.
        caution: how sure they are.
        warnings: what makes numbers mean less than they seem to.
    """

    facts: Sequence[str]
    heading: str
    findings: Sequence[str]
    caution: Sequence[str]
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Weights:
    """What is known of the weights of the models.

    Args:
        origins: where they are from, by label.
        untrained: labels of models with random weights.
        remarks: on models that share a name.
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
        labels: of the models, the baseline first.
        sections: what was measured.
        differences: of all models to the baseline.
        weights: where those of the models are from.
    """
    weights = weights or Weights()
    warnings = [*_untrained(weights.untrained), *weights.remarks]
    measurements = [m for section in sections for found in section.repeats.values() for m in found]
    together = [each for section in sections for each in section.averaged()]
    facts = [_models(labels, len(sections)), *_data(measurements, together), *_origins(weights.origins)]
    right = accuracy(sections)
    if len(labels) == 1:
        caution = [*_one_run(sections), _noise(sections)]
        return Summary(facts, "Key numbers", [*right, *_key_numbers(sections)], caution, warnings)
    told_first = [each for each in differences if tells_accuracy(each.kind, each.name)]
    foremost = strongest(each for each in differences if each not in told_first)
    caution = [*_one_run(sections), *_count(differences), _noise(sections), *_different_data(sections)]
    findings = [*right, *map(sentence, foremost)]
    return Summary(facts, _heading([*told_first, *foremost]), findings, caution, warnings)


def strongest(differences: Iterable[Difference], count: int = FINDINGS) -> list[Difference]:
    """The largest differences relative to their noise, one for each kind and model; of many models one for each kind.

    Where noise is not known, those follow that are largest relative to the baseline's number.
    """
    ranked = sorted(differences, key=_rank, reverse=True)
    many = len({each.label for each in ranked}) >= MODELS - 1
    best: dict[tuple[str, str], Difference] = {}
    for each in ranked:
        best.setdefault((each.title, "" if many else each.label), each)
    return list(best.values())[:count]


def sentence(difference: Difference) -> str:
    """A difference in words.

    >>> sentence(Difference("entropy", "mean", "CB", Number(3.7, 0.01), Number(3.85, 0.01)))
    "Entropy, mean: 3.85 for CB against the baseline's 3.7, +0.15 (95 %: +0.122 to +0.178), larger than the noise."
    """
    d = difference
    told = (
        f"{_of(d.title, value_in_words(d.kind, d.name))}: {_short(d.number.value)} for {d.label} against the baseline's"
    )
    told = f"{told} {_short(d.baseline.value)}, {d.value:+.3g}"
    if math.isnan(d.half_width):
        return f"{told}; noise not known."
    return f"{told} (95 %: {d.value - d.half_width:+.3g} to {d.value + d.half_width:+.3g}), {d.verdict}."


def with_interval(number: Number) -> str:
    """A number, with its 95 % interval where that is known.

    >>> with_interval(Number(2.0, 0.1)), with_interval(Number(2.0))
    ('2 (95 %: 1.804 to 2.196)', '2')
    """
    if math.isnan(number.half_width):
        return _short(number.value)
    low, high = number.value - number.half_width, number.value + number.half_width
    return f"{_short(number.value)} (95 %: {_short(low)} to {_short(high)})"


def _heading(foremost: Sequence[Difference]) -> str:
    if any(each.strength > 1 for each in foremost):
        return "What differs most, relative to its noise"
    if all(math.isnan(each.strength) for each in foremost):
        return "Largest differences, noise not known"
    return "No difference is larger than its noise; the largest"


def _models(labels: Sequence[str], kinds: int) -> str:
    looked = f"{kinds} kind{'s' if kinds > 1 else ''} of measurement"
    if len(labels) == 1:
        return f"One model, {labels[0]}, and {looked}."
    others = [*labels[1:]] if len(labels) <= 2 * MODELS else [*labels[1:MODELS], f"{len(labels) - MODELS} more"]
    return f"{len(labels)} models and {looked}: {labels[0]} is the baseline, held against it {_and(others)}."


def _origins(origins: Mapping[str, str]) -> list[str]:
    if not origins:
        return []
    return [f"Weights: {'; '.join(f'{label}: {_weights_in_words(origin)}' for label, origin in origins.items())}."]


def _weights_in_words(origin: str) -> str:
    """Where weights are from.

    >>> _weights_in_words("random"), _weights_in_words("file: runs/cb/model.safetensors")
    ('random, not trained', 'file runs/cb/model.safetensors')
    """
    return "random, not trained" if origin == "random" else origin.replace(": ", " ", 1)


def _untrained(labels: Sequence[str]) -> list[str]:
    if not labels:
        return []
    verb, whose = ("has", "Its") if len(labels) == 1 else ("have", "Their")
    return [
        f"{_and(labels)} {verb} random weights and {'was' if len(labels) == 1 else 'were'} not trained. "
        f"{whose} numbers say nothing about a trained model."
    ]


def _one_run(sections: Sequence[Section]) -> list[str]:
    """That no model was trained twice, as far as repeats show it."""
    several = any(len(found) > 1 and not _parts(found) for section in sections for found in section.repeats.values())
    if several:
        return []
    if max(len(section.repeats) for section in sections) == 1:
        return ["One training run: another seed may differ by more."]
    return ["One training run each: differences between models include the luck of the seed."]


def _data(measurements: Sequence[Measurement], together: Sequence[Measurement]) -> list[str]:
    """On what, how many images, which device, when: as far as provenance knows. Parts count together."""
    notes = [measurement.provenance for measurement in measurements]
    sets = _distinct(data_set(measurement) for measurement in measurements)
    images = _said([measurement.provenance for measurement in together], "images")
    counts = sorted({int(n) for n in images if isinstance(n, (int, float))})
    devices = _distinct(map(str, _said(notes, "device")))
    days = sorted({str(time)[:10] for time in _said(notes, "time")})
    parts = [f"on {_and(sets)}"] if sets else []
    if counts:
        parts.append(f"with {counts[0]}{f' to {counts[-1]}' if len(counts) > 1 else ''} images each")
    parts += [f"on {_and(devices)}"] if devices else []
    if days:
        parts.append(f"on {_day(days[0])}" if len(days) == 1 else f"from {_day(days[0])} to {_day(days[-1])}")
    return [f"Measured {', '.join(parts)}."] if parts else ["Where and on what this was measured was not kept."]


def _key_numbers(sections: Sequence[Section]) -> list[str]:
    """The first number of each kind, those with known noise first."""
    found = []
    for section in sections:
        for measurement in section.averaged():
            table = numbers(measurement)
            first = [(name, number) for name, number in table.items() if not tells_accuracy(section.kind, name)][:1]
            found += [(section.title, value_in_words(section.kind, name), number) for name, number in first]
    found.sort(key=lambda each: math.isnan(each[2].error))
    return [f"{_of(title, name)}: {with_interval(number)}." for title, name, number in found[: FINDINGS + 1]]


def _count(differences: Sequence[Difference]) -> list[str]:
    """How many were compared, and how many would stand out by chance."""
    known = [each for each in differences if not math.isnan(each.strength)]
    if not differences:
        return ["No number was measured of both the baseline and another model: nothing is compared."]
    if not known:
        return [f"{len(differences)} numbers were compared, and the noise of none is known."]
    clear = sum(each.strength > 1 for each in known)
    chance = f"about {max(1, round(0.05 * len(known)))} would by chance alone if nothing differed"
    told = f"Of {len(known)} numbers compared whose noise is known, {clear} differ by more than it; {chance}."
    unknown = len(differences) - len(known)
    told += f" The noise of {unknown} more is not known." if unknown else ""
    return [f"{told} {_pairing(known)}"]


def _pairing(known: Sequence[Difference]) -> str:
    """How many differences are those of models on the same images."""
    paired = sum(each.pairs > 0 for each in known)
    if not paired:
        return "Models count as unpaired, which is cautious where they saw the same images."
    which = "All" if paired == len(known) else f"{paired} of these"
    return f"{which} are paired: both models on the same images, or the same parts of them."


def _noise(sections: Sequence[Section]) -> str:
    """Where the noise comes from: repeats of one training or several, or the images alone."""
    repeats = [found for section in sections for found in section.repeats.values()]
    most = max(map(len, repeats))
    if most == 1:
        return "One measurement of each: where intervals are given they are those of the images (normal, 95 %)."
    again = [found for found in repeats if len(found) > 1]
    parts = all(map(_parts, again))
    what = "parts of the images" if parts else "runs or seeds"
    own = "an instrument's own interval over images (normal) stands where it is wider or the only one"
    return f"Intervals at 95 % are Student's over up to {most} repeats ({what}); {own}."


def _parts(repeats: Sequence[Measurement]) -> bool:
    """Whether repeats are of other images, and so tell nothing of another training."""
    return len({str(repeat.provenance.get("data")) for repeat in repeats}) == len(repeats)


def _different_data(sections: Sequence[Section]) -> list[str]:
    for section in sections:
        seen = {label: {str(m.provenance.get("data", "")) for m in each} for label, each in section.repeats.items()}
        if len({frozenset(each) for each in seen.values()}) > 1:
            return [
                "Not all models saw the same images: differences between them are also differences between their data."
            ]
    return []


def _rank(difference: Difference) -> tuple[bool, float]:
    known = not math.isnan(difference.strength)
    base = abs(difference.baseline.value)
    return known, difference.strength if known else abs(difference.value) / base if base else abs(difference.value)


def _of(title: str, name: str) -> str:
    return f"{title[:1].upper()}{title[1:]}, {name}"


def _said(notes: Sequence[Mapping[str, object]], key: str) -> list[object]:
    """All that was noted under a key, lists of averaged repeats opened."""
    found = [note[key] for note in notes if note.get(key) not in (None, "")]
    return [each for item in found for each in (item if isinstance(item, list) else [item])]


def _day(text: str) -> str:
    """A date in words; what is no date stays.

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


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _short(value: float) -> str:
    return f"{value:.4g}"
