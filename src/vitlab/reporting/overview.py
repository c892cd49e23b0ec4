"""The overview of a report: a key number of each kind for all models, coloured by difference relative to noise."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from vitlab.reporting.differences import Difference
from vitlab.reporting.number_text import clearness, difference_text, minus, value_text
from vitlab.reporting.rows import Row

#: Differences in half widths of their 95 % interval from which a cell has the colour of level 1, 2 and 3.
LEVELS = (1.0, 2.0, 4.0)

_LONGEST = 7  # characters of a number that fit a cell


@dataclass(frozen=True)
class Cell:
    """The difference of one model from the baseline.

    Args:
        text: the difference, rounded to its error, without the error.
        symbol: ▲ clearly larger, ▼ clearly smaller, ≈ within the noise, ? noise not known, – not measured.
        level: from −3 to 3, of the colour; 0 unless the difference is clear.
        words: the meaning of the symbol.
    """

    text: str = ""
    symbol: str = "–"
    level: int = 0
    words: str = "not measured"


@dataclass(frozen=True)
class Line:
    """One kind in the overview.

    Args:
        title: the kind.
        target: the identifier of its section.
        what: the key number with its unit.
        value: of the baseline; empty if it was not measured.
        cells: one per other model.
    """

    title: str
    target: str
    what: str
    value: str
    cells: Sequence[Cell]


def line(title: str, target: str, row: Row, labels: Sequence[str]) -> Line:
    """The line of a kind.

    Args:
        title: the kind.
        target: the identifier of its section.
        row: its key number.
        labels: of all models of the report, the baseline first.
    """
    baseline, *others = labels
    value = _brief(value_text(row.numbers[baseline], row.scale)) if baseline in row.numbers else ""
    return Line(title, target, row.title, value, [_cell(row, label) for label in others])


def level(difference: Difference) -> int:
    """The colour of a clear difference, negative if smaller than the baseline; 0 if it is not clear.

    >>> from vitlab.reporting.differences import Number
    >>> [level(Difference("", "", "", Number(0.0, 0.0), Number(x, 1 / 1.96))) for x in (-5, -2.5, 0.9, 1.1)]
    [-3, -2, 0, 1]
    """
    if math.isnan(difference.strength):
        return 0
    steps = sum(difference.strength > least for least in LEVELS)
    return steps if difference.value > 0 else -steps


def _cell(row: Row, label: str) -> Cell:
    difference = row.differences.get(label)
    if difference is None:
        if label not in row.numbers:
            return Cell()
        return Cell(_brief(value_text(row.numbers[label], row.scale)), "", 0, "not compared")
    text, state = _brief(difference_text(difference, row.scale)), clearness(difference)
    if state == "clear":
        larger = difference.value > 0
        side = "higher" if larger else "lower"
        return Cell(text, "▲" if larger else "▼", level(difference), f"clearly {side} than the baseline")
    if state == "unclear":
        return Cell(text, "≈", 0, "not clear: within the noise")
    return Cell(text, "?", 0, "noise not known")


def _brief(text: str) -> str:
    """A number without its error, which the table of the section has; with two digits if it does not fit a cell.

    >>> _brief("−2.00 ± 0.20"), _brief("+0.000734 ± 0.000003"), _brief("0.000031")
    ('−2.00', '+0.00073', '3.1e−05')
    """
    number = text.partition(" ±")[0]
    if len(number) <= _LONGEST or not re.fullmatch(r"[+−]?[\d.]+", number):
        return number
    value = float(number.replace("−", "-"))
    return minus(f"{value:+.2g}" if number[0] in "+−" else f"{value:.2g}")
