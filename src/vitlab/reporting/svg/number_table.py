"""A table of a paper as a picture: each cell has the paper's number and ours beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vitlab.reporting.svg.canvas import Canvas, text_width

__all__ = ["Cell", "Row", "number_table"]

_LINE = 24


@dataclass(frozen=True)
class Cell:
    """The paper's number and ours, as printed; empty if there is none.

    Args:
        paper: the published number.
        ours: our number.
    """

    paper: str = ""
    ours: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Args:
        labels: the first columns.
        cells: one per column of numbers.
    """

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]


def number_table(
    title: str, about: str, labels: Sequence[str], columns: Sequence[str], rows: Sequence[Row], notes: Sequence[str]
) -> str:
    """Returns the picture of a table.

    Args:
        title, about: the heading, and a line below it.
        labels: headings of the first columns.
        columns: headings of the columns of numbers, in the paper's order.
        rows: in the paper's order.
        notes: lines below the table.
    """
    widths = [
        max(text_width(text) for text in (name, *(row.labels[index] for row in rows))) + 18
        for index, name in enumerate(labels)
    ]
    pairs = [_pair_width(name, [row.cells[index] for row in rows]) for index, name in enumerate(columns)]
    longest = max((text_width(text) for text in (title, about, *notes)), default=0.0)
    width = max(40 + sum(widths) + sum(first + second for first, second in pairs), 40 + 0.95 * longest)
    canvas = Canvas(round(width), 112 + _LINE * len(rows) + 22 * len(notes) + 20, title, about)
    places = [20 + sum(widths[:index]) for index in range(len(widths))]
    _heading(canvas, labels, places, columns, pairs, 20 + sum(widths))
    for number, row in enumerate(rows):
        y = 118 + _LINE * number
        for place, text in zip(places, row.labels, strict=True):
            canvas.text(place, y, text)
        x = 20 + sum(widths)
        for cell, (first, second) in zip(row.cells, pairs, strict=True):
            canvas.text(x + first - 8, y, cell.paper or "–", "paper end")
            canvas.text(x + first + second - 16, y, cell.ours or "not run", "ours end" if cell.ours else "soft end")
            x += first + second
        canvas.line(20, y + 8, canvas.width - 20, y + 8, "grid")
    for number, note in enumerate(notes):
        canvas.text(20, 118 + _LINE * len(rows) + 10 + 22 * number, note, "soft")
    return str(canvas)


def _pair_width(name: str, cells: Sequence[Cell]) -> tuple[float, float]:
    """The widths of the two halves of a column."""
    first = max(text_width(text) for text in ("paper", *(cell.paper for cell in cells))) + 12
    second = max(text_width(text) for text in ("not run", *(cell.ours for cell in cells))) + 24
    return first, max(second, text_width(name) + 20 - first)


def _heading(
    canvas: Canvas,
    labels: Sequence[str],
    places: Sequence[float],
    columns: Sequence[str],
    pairs: Sequence[tuple[float, float]],
    start: float,
) -> None:
    for place, name in zip(places, labels, strict=True):
        canvas.text(place, 76, name, "head")
    for name, (first, second) in zip(columns, pairs, strict=True):
        canvas.text(start + first + second - 16, 76, name, "head end")
        canvas.text(start + first - 8, 94, "paper", "paper small end")
        canvas.text(start + first + second - 16, 94, "ours", "ours small end")
        start += first + second
    canvas.line(20, 101, canvas.width - 20, 101, "zero")
