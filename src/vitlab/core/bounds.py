"""Bounds of settings, declared on signatures: `bins: Annotated[int, Range(1, 1000)] = 10`.

`core/settings.py` checks given values against them; `vitlab list --settings`, shell completion and the documentation
show them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

_LARGEST = 10**30  # no cost is computed of larger numbers


@dataclass(frozen=True)
class Range:
    """A range of numbers.

    Args:
        low, high: its limits; None for no limit.
        open_low, open_high: whether that limit is excluded.
        cost: describes the cost of a value that is too large, for the error.

    >>> str(Range(1, 1000)), str(Range(0, 1, open_low=True)), str(Range(0)), str(Range(0, 1, open_high=True))
    ('from 1 to 1,000', 'above 0 and up to 1', 'of 0 or more', 'from 0 to below 1')
    """

    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False
    cost: Callable[[Any], str] | None = None

    def __contains__(self, value: float) -> bool:
        above = self.low is None or (operator.lt if self.open_low else operator.le)(self.low, value)
        return above and (self.high is None or (operator.lt if self.open_high else operator.le)(value, self.high))

    def __str__(self) -> str:
        low = "" if self.low is None else f"above {_number(self.low)}" if self.open_low else f"from {_number(self.low)}"
        if self.high is None:
            return low if self.open_low or self.low is None else f"of {_number(self.low)} or more"
        high = f"{'below' if self.open_high else 'up to'} {_number(self.high)}"
        if not low or self.open_low:
            return f"{low} and {high}" if low else high
        return f"{low} to {high.removeprefix('up to ')}"

    def hint(self, value: Any) -> str:
        """What a value that is too large would cost; empty if that is not known."""
        too_large = self.high is not None and self.high < value < _LARGEST
        return f"; {self.cost(value)}" if self.cost is not None and too_large else ""


@dataclass(frozen=True)
class Choices:
    """Valid values of a setting, for names that are listed elsewhere in the code.

    >>> "fog" in Choices(("fog", "snow")), str(Choices(("fog", "snow")))
    (True, "'fog' or 'snow'")
    """

    values: tuple[Any, ...]

    def __contains__(self, value: Any) -> bool:
        return any(type(value) is type(each) and value == each for each in self.values)

    def __str__(self) -> str:
        if len(self.values) < 3:
            return " or ".join(map(repr, self.values))
        return f"one of {', '.join(map(repr, self.values))}"

    def hint(self, value: Any) -> str:
        """The choice that is most like the value; empty if there is none."""
        near = get_close_matches(value, map(str, self.values), n=1) if isinstance(value, str) else []
        return f" (did you mean {near[0]!r}?)" if near else ""


@dataclass(frozen=True)
class Length:
    """The number of values of a list.

    Args:
        low, high: its limits; None for no upper limit.
        distinct: whether a value may occur only once.

    >>> str(Length(1, 3)), str(Length(2, distinct=True)), str(Length(3, 3)), (1, 1) in Length(distinct=True)
    ('1 to 3 values', '2 or more distinct values', '3 values', False)
    """

    low: int = 1
    high: int | None = None
    distinct: bool = False

    def __contains__(self, value: Sequence[Any]) -> bool:
        fits = self.low <= len(value) and (self.high is None or len(value) <= self.high)
        return fits and not (self.distinct and len(set(value)) < len(value))

    def __str__(self) -> str:
        return self.words("values")

    def words(self, values: str) -> str:
        """The number of values in words."""
        several = f"{self.low} or more" if self.high is None else f"{self.low} to {self.high:,}"
        count = str(self.low) if self.low == self.high else several
        return f"{count} {'distinct ' if self.distinct else ''}{values}"

    def hint(self, value: Any) -> str:
        """Nothing."""
        return ""


#: Any integer of 64 bits.
Seed = Annotated[int, Range(-(2**63), 2**63 - 1)]
#: A number of images; more than the data has are all of them.
ImageCount = Annotated[int, Range(1, 10**9)]
#: A share from 0 to 1.
Share = Annotated[float, Range(0, 1)]
#: A share above 0 and up to 1.
PositiveShare = Annotated[float, Range(0, 1, open_low=True)]
#: A share below 1, such as a rate of dropout.
Rate = Annotated[float, Range(0, 1, open_high=True)]
#: A weight, a threshold or a standard deviation.
Weight = Annotated[float, Range(0, 10**6)]
#: A radius, temperature or learning rate.
Positive = Annotated[float, Range(0, 10**6, open_low=True)]
#: Severity of a corruption of ImageNet-C.
Severity = Annotated[int, Range(1, 5)]
#: Mean and standard deviation of the colour channels.
ChannelMeans = Annotated[Sequence[Annotated[float, Range(-(10**6), 10**6)]], Length(1, 16)]
ChannelDeviations = Annotated[Sequence[Positive], Length(1, 16)]


def _number(value: float) -> str:
    """A limit in words; powers of two that bound integers are written as powers.

    >>> _number(1000), _number(0.5), _number(2**63 - 1)
    ('1,000', '0.5', '2^63 - 1')
    """
    known = {2**63 - 1: "2^63 - 1", -(2**63): "-2^63", 2**32 - 1: "2^32 - 1"}
    return known.get(value, f"{value:,}") if isinstance(value, int) else f"{value:,}"
