"""The axes of a static figure: ranges, ticks, and the mapping of values to pixels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

#: The number of ticks that an axis has at most, if it does not declare its own.
_TICKS = 6


@dataclass(frozen=True)
class Axis:
    """One axis.

    Args:
        low, high: the ends in data units; logarithms on a logarithmic axis.
        start, end: the pixels of both ends.
        log: whether the axis is logarithmic.
        categories: the labels of a categorical axis; their positions are 0, 1, …
        ticks: positions in the units of `low` and `high`, with their labels.
        title: the title.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    categories: tuple[str, ...] = ()
    ticks: Sequence[tuple[float, str]] = ()
    title: str = ""

    def pixel(self, value: Any) -> float:
        """The pixel of a value; NaN if it is missing or not on the axis."""
        place = self.place(value)
        return self.start + (place - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)

    def place(self, value: Any) -> float:
        """The position of a value in the units of `low` and `high`; NaN if it is missing or not on the axis.

        >>> Axis(0, 1, 0, 1, log=True).place(10.0), Axis(0, 1, 0, 1, categories=("a", "b")).place("b")
        (1.0, 1.0)
        """
        return _position(value, self.log, self.categories)


@dataclass
class Extent:
    """The values along one axis, collected from all traces."""

    values: list[Any] = field(default_factory=list)

    def axis(self, about: dict[str, Any], start: float, end: float) -> Axis:
        """The axis that shows these values, as its plotly description `about` says."""
        log = about.get("type") == "log"
        names = [value for value in self.values if isinstance(value, str)]
        categorical = about.get("type") == "category" or bool(names)
        categories = tuple(dict.fromkeys(map(str, self.values))) if categorical else ()
        places = [_position(value, log, categories) for value in self.values]
        low, high = _range([place for place in places if math.isfinite(place)], about, bool(categories))
        if about.get("autorange") == "reversed":
            low, high = high, low
        title = str((about.get("title") or {}).get("text") or "")
        ticks = _ticks(about, low, high, log, categories) if about.get("showticklabels") is not False else []
        return Axis(low, high, start, end, log, categories, ticks, title)


def _position(value: Any, log: bool, categories: Sequence[str]) -> float:
    if categories and isinstance(value, str):
        return float(categories.index(value)) if value in categories else math.nan
    if value is None or isinstance(value, str):
        return math.nan
    number = float(value)
    if log:
        return math.log10(number) if number > 0 else math.nan
    return number


def _range(places: Sequence[float], about: dict[str, Any], categorical: bool) -> tuple[float, float]:
    given = about.get("range")
    if given is not None and all(isinstance(end, (int, float)) for end in given):
        return float(given[0]), float(given[1])
    if not places:
        return 0.0, 1.0
    low, high = min(places), max(places)
    if categorical:
        return low - 0.6, high + 0.6
    room = 0.05 * (high - low) or 0.5
    least = about.get("minallowed")
    if isinstance(least, (int, float)) and low < least:
        low, room_below = float(least), 0.0
    else:
        room_below = room
    if about.get("rangemode") == "tozero" and low >= 0:
        return 0.0, high + room
    return low - room_below, high + room


def _ticks(
    about: dict[str, Any], low: float, high: float, log: bool, categories: Sequence[str]
) -> list[tuple[float, str]]:
    if about.get("tickvals") is not None:
        values = [_position(value, log, categories) for value in about["tickvals"]]
        texts = [str(text) for text in about.get("ticktext") or about["tickvals"]]
        return [(value, text) for value, text in zip(values, texts, strict=False) if math.isfinite(value)]
    if categories:
        every = max(1, -(-len(categories) // 12))
        return [(float(i), name) for i, name in enumerate(categories) if i % every == 0]
    return [(place, _label(10**place if log else place)) for place in round_steps(min(low, high), max(low, high))]


def round_steps(low: float, high: float) -> Iterable[float]:
    """Multiples of 1, 2 or 5 times a power of ten between two numbers, at most six.

    >>> list(round_steps(0.0, 1.0))
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    rough = span / (_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(place * step, 12) for place in range(first, math.floor(high / step + 1e-9) + 1)]


def _label(value: float) -> str:
    return f"{value:.4g}".replace("-", "−")
