"""The result of a figure: a short claim for its title, a sentence with the numbers, and a row for the table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vitlab.core.measurement import Measurement
from vitlab.reporting.differences import Difference, Number, Reading, difference, number
from vitlab.reporting.findings import UNKNOWN, finding
from vitlab.reporting.number_text import clearness, unit_of, value_text
from vitlab.reporting.rows import Row
from vitlab.reporting.words import joined

#: The most letters of a claim.
LONGEST = 90

#: Shares of at most this many samples are also given as counts.
FEW = 50


@dataclass(frozen=True)
class Headline:
    """The result of a figure.

    Args:
        sentence: the result with its numbers.
        claim: the title, without a list of numbers; by default the start of the sentence.
        row: the number in the table of the section; None if there is no single number.
    """

    sentence: str
    claim: str = ""
    row: Row | None = None

    @property
    def title(self) -> str:
        """The claim, else the sentence up to its first colon, shortened."""
        return shortened(self.claim or self.sentence.partition(":")[0])


@dataclass(frozen=True)
class Phrase:
    """How a claim is worded: `subject` then the word for a smaller or a larger number, then `with` and the models.

    >>> Phrase("Attention is", ("more focused", "more even")).subject
    'Attention is'
    """

    subject: str = ""
    words: tuple[str, str] = ("lower", "higher")


@dataclass(frozen=True)
class Samples:
    """The samples of a share.

    Args:
        noun: such as `eigenvalues`.
        count: returns the number of samples of a measurement, 0 if unknown; default: its number of images.
    """

    noun: str = "images"
    count: Callable[[Measurement], int] | None = None


def describe_number(
    what: str,
    measurements: Sequence[Measurement],
    reading: Reading,
    unit: str = "",
    *,
    words: tuple[str, str] = ("lower", "higher"),
    claim: Phrase | None = None,
    name: str = "",
    samples: Samples | None = None,
) -> Headline:
    """The result of one number: its claim, its sentence and its row.

    Args:
        what: the name of the number.
        measurements: one per model, the baseline first.
        reading: the number, in the unit.
        unit: such as `%`; differences in percent are called points.
        words: for a smaller and a larger number, in the sentence.
        claim: the wording of the claim; by default `what` with `words`.
        name: the value that the number is read from, if it is one value.
        samples: of which the number is a share in percent; few samples are counted in the table.
    """
    numbers = {each.subject: number(each, reading) for each in measurements}
    gaps = [
        difference(measurements[0], other, reading, name=name, label=other.subject, kind=other.kind)
        for other in measurements[1:]
    ]
    verdicts, halves = [gap.verdict for gap in gaps], [each.half_width for each in numbers.values()]
    values, names = [each.value for each in numbers.values()], list(numbers)
    scale, shown = unit_of(measurements[0].kind, name) if name and not unit else (1.0, unit)
    values, halves = [scale * value for value in values], [scale * half for half in halves]
    widths = [scale * gap.half_width for gap in gaps]
    sentence = finding(what, values, names, shown, halves=halves, gaps=widths, verdicts=verdicts, words=words)
    known = {label: each for label, each in numbers.items() if math.isfinite(each.value)}
    counts = {} if samples is None else _counts(measurements, known, samples)
    compared = {gap.label: gap for gap in gaps if math.isfinite(gap.value)}
    row = Row(what, known, compared, shown, scale, counts, name)
    phrase = claim or Phrase(f"{what} is", words)
    return Headline(sentence, state(row, phrase), row)


def state(row: Row, phrase: Phrase) -> str:
    """The claim of a row: which models differ clearly from the baseline, and in which direction.

    A difference of unknown noise is not a claim: the title then has the numbers, if they fit.

    >>> def gap(label, value):
    ...     return Difference("", "", label, Number(1.0, 0.1), Number(value, 0.1))
    >>> row = Row("Entropy", {}, {"TAP": gap("TAP", 2.0), "CB": gap("CB", 1.1)})
    >>> state(row, Phrase("Attention is", ("more focused", "more even")))
    'Attention is more even with TAP; CB does not differ measurably'
    >>> state(Row("Entropy", {}, {"CB": gap("CB", 1.1)}), Phrase())
    'No measurable difference in entropy'
    >>> state(Row("Entropy", {}, {"CB": Difference("", "", "CB", Number(1.0), Number(2.0))}), Phrase())
    'Entropy: noise not known'
    >>> known = {"ViT": Number(1.0), "CB": Number(2.0)}
    >>> state(Row("Entropy", known, {"CB": Difference("", "", "CB", *known.values())}), Phrase())
    'Entropy: 1 for ViT, 2 for CB; noise not known'
    """
    if not row.differences:
        return _single(row)
    kinds: dict[str, list[Difference]] = {"clear": [], "unclear": [], "unknown": []}
    for each in row.differences.values():
        kinds[clearness(each)].append(each)
    if not kinds["clear"] and not kinds["unclear"]:
        return _listed(row)
    if not kinds["clear"]:
        return shortened(f"No measurable difference in {_lower(row.what)}")
    doubtful = [each.label for each in kinds["unknown"]]
    ending = f"; noise of {joined(doubtful)} not known" if doubtful else ""
    return _shortest(phrase, kinds["clear"], [each.label for each in kinds["unclear"]], ending)


def shortened(text: str, most: int = LONGEST) -> str:
    """Text of at most `most` letters, cut after a word.

    >>> shortened("one two three", 9)
    'one two…'
    """
    if len(text) <= most:
        return text
    return f"{text[:most].rpartition(' ')[0] or text[: most - 1]}…"


def _listed(row: Row) -> str:
    """The numbers of all models without a claim, or the name of the number if they do not fit."""
    unit = f" {row.unit}" if row.unit else ""
    values = [f"{value_text(each, row.scale)}{unit} for {label}" for label, each in row.numbers.items()]
    ending = f"; {UNKNOWN}"
    whole = f"{row.what}: {', '.join(values)}{ending}"
    if values and len(whole) <= LONGEST:
        return whole
    ending = f": {UNKNOWN}"
    return f"{shortened(row.what, LONGEST - len(ending))}{ending}"


def _single(row: Row) -> str:
    """The claim about a single model, or the name of the number of models that are not compared."""
    if len(row.numbers) != 1:
        return shortened(row.what)
    (only,) = row.numbers.values()
    unit = f" {row.unit}" if row.unit else ""
    text = value_text(only, row.scale)
    text = f"({text}){unit}" if unit and "±" in text else f"{text}{unit}"
    whole = f"{row.what}: {text}"
    return whole if len(whole) <= LONGEST else shortened(row.what)


def _shortest(phrase: Phrase, stated: Sequence[Difference], rest: Sequence[str], ending: str) -> str:
    """The most detailed form of a claim that is not longer than `LONGEST`."""
    verb = f"{'do' if len(rest) > 1 else 'does'} not differ measurably"
    named, counted = (f"; {who} {verb}" if rest else "" for who in (joined(rest), f"{len(rest)} of the others"))
    full, brief = (_sides(phrase, stated, names=names) for names in (True, False))
    endings = (f"{named}{ending}", f"{counted}{ending}", ending, "")
    forms = [f"{start}{end}" for start in (full, brief) for end in endings]
    return next((form for form in forms if len(form) <= LONGEST), shortened(brief))


def _sides(phrase: Phrase, stated: Sequence[Difference], *, names: bool) -> str:
    sides = []
    for larger in (True, False):
        own = [each.label for each in stated if each.value and (each.value > 0) == larger]
        models = joined(own) if names else f"{len(own)} model{'s' if len(own) > 1 else ''}"
        sides += [f"{phrase.words[larger]} with {models}"] if own else []
    return f"{phrase.subject} {', '.join(sides)}"


def _counts(measurements: Sequence[Measurement], numbers: Mapping[str, Number], samples: Samples) -> dict[str, str]:
    """Shares of few samples as counts; those that are not a whole number of samples, such as means, are left out."""
    found = {}
    for measurement in measurements:
        total = (samples.count or _images)(measurement)
        if measurement.subject in numbers and 0 < total <= FEW:
            hits = numbers[measurement.subject].value * total / 100
            if abs(hits - round(hits)) < 0.01:
                found[measurement.subject] = f"{round(hits)} of {total} {samples.noun}"
    return found


def _images(measurement: Measurement) -> int:
    images = measurement.provenance.get("images")
    return images if isinstance(images, int) else 0


def _lower(text: str) -> str:
    """Text with a small first letter, unless its first word is an abbreviation."""
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text
