"""The key numbers of measurements as rows: one per number, with all models and their differences from the first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vitlab.core.measurement import Measurement
from vitlab.reporting.comparison import compare, numbers
from vitlab.reporting.differences import Difference, Number
from vitlab.reporting.findings import UNKNOWN
from vitlab.reporting.models import name_models
from vitlab.reporting.sections import Section, label_models, sort
from vitlab.reporting.words import value_in_words

#: Words in the names of shares of images, which are shown in percent.
_SHARES = ("accuracy", "error", "drop", "mce", "miou", "ece")

#: The most numbers of a kind.
_MOST = 3


@dataclass(frozen=True)
class KeyNumber:
    """One number of all models.

    Args:
        title: the instrument or stress test.
        name: the number in words, with its unit.
        values: the number of each model as text, with half its 95 % interval if known.
        differences: of each model but the first, as text.
        clear: of each model but the first: `clear`, `unclear`, or empty if the noise is not known.
    """

    title: str
    name: str
    values: Mapping[str, str]
    differences: Mapping[str, str] = field(default_factory=dict)
    clear: Mapping[str, str] = field(default_factory=dict)


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


def _rows(section: Section) -> list[KeyNumber]:
    by_label = {each.subject: numbers(each) for each in section.averaged()}
    differences = {(each.name, each.label): each for each in compare(section)}
    names = list(dict.fromkeys(name for own in by_label.values() for name in own))[:_MOST]
    rows = []
    for name in names:
        scale, unit = _unit(section.kind, name)
        values = {label: value_text(own[name], scale) if name in own else "–" for label, own in by_label.items()}
        own = {label: differences[name, label] for label in by_label if (name, label) in differences}
        texts = {label: _difference_text(each, scale) for label, each in own.items()}
        clear = {label: _clear(each) for label, each in own.items()}
        rows.append(KeyNumber(section.title, f"{value_in_words(section.kind, name)}{unit}", values, texts, clear))
    return rows


def value_text(number: Number, scale: float = 1.0) -> str:
    """A number rounded to its error.

    >>> value_text(Number(0.71234, 0.01), 100), value_text(Number(3.14159))
    ('71.2 ± 2.0', '3.142')
    """
    half = scale * number.half_width
    if not math.isfinite(half):
        return _minus(f"{scale * number.value:.4g}")
    places = _places(half)
    return _minus(f"{scale * number.value:.{places}f} ± {half:.{places}f}")


def _difference_text(difference: Difference, scale: float) -> str:
    half = scale * difference.half_width
    if not math.isfinite(half):
        return _minus(f"{scale * difference.value:+.3g}")
    places = _places(half)
    return _minus(f"{scale * difference.value:+.{places}f} ± {half:.{places}f}")


def _places(half: float) -> int:
    """Decimal places that show two significant digits of an error, at most 6."""
    return 3 if half <= 0 else min(6, max(0, 1 - math.floor(math.log10(half))))


def _clear(difference: Difference) -> str:
    if difference.verdict == UNKNOWN:
        return ""
    return "clear" if difference.strength > 1 else "unclear"


def _unit(kind: str, name: str) -> tuple[float, str]:
    """The factor and the unit of a number; shares are shown in percent."""
    if kind == "training":
        return 1.0, ", %" if name.startswith("top") else ""
    return (100.0, ", %") if any(word in name.split("_") for word in _SHARES) else (1.0, "")


def _minus(text: str) -> str:
    return text.replace("-", "−")
