"""A section as data for a template: its claim, one figure, the key numbers, and the rest for a fold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vitlab.core.descriptions import origin
from vitlab.core.errors import ExtensionError
from vitlab.core.extensions import warn_once
from vitlab.core.repeats import Combined
from vitlab.reporting import page_figure
from vitlab.reporting.convergence import convergence_note
from vitlab.reporting.default_drawing import draw_by_axes
from vitlab.reporting.differences import Difference
from vitlab.reporting.drawing import Figure, Fragment, draw
from vitlab.reporting.headline import Phrase, state
from vitlab.reporting.image_strips import strips
from vitlab.reporting.number_text import clearness, difference_text, value_text
from vitlab.reporting.rows import Row, rows
from vitlab.reporting.sections import Section

#: The number of rows of the table outside the fold, of a section in one column and of a wide one.
VISIBLE_ROWS, VISIBLE_ROWS_WIDE = 2, 1

_SYMBOLS = {"unclear": "≈", "unknown": "?"}
_WORDS = {"clear": "clear", "unclear": "within the noise", "unknown": "noise not known"}

#: Whether any model differs from the baseline in the first number of a section, by `badge_of`.
BADGES = {"clear": "differs", "part": "partly", "unclear": "within noise", "unknown": "noise unknown"}


def view(number: int, section: Section, differences: Sequence[Difference], labels: Sequence[str]) -> dict[str, Any]:
    """A section for the template.

    Args:
        number: of the section on the page, from 1.
        section: the measurements of one kind.
        differences: the result of `comparison.compare` of the section.
        labels: of all models of the report. If the section has the first of them, its figures have their colours and
            need no legend of their own.
    """
    figures, note = draw_section(section)
    table = rows(section, differences, [each.headline.row for each in figures if isinstance(each, Figure)])
    own = list(section.repeats)
    shared = labels if own == list(labels[: len(own)]) else ()
    views = [page_figure.view(each, shared) for each in figures]
    for index, each in enumerate(views, start=1):
        each["id"], each["file"] = f"figure-{number}-{index}", f"{_file(section)}-{index}"
    key = table[0] if table else None
    cells = [_row(row, own) for row in table]
    wide = bool(views) and (views[0]["panels"] > 2 or not views[0]["plot"])
    pictures = strips(section)
    shown = VISIBLE_ROWS_WIDE if wide else VISIBLE_ROWS
    return {
        "id": f"section-{number}",
        "title": section.title[:1].upper() + section.title[1:],
        "claim": claim_of(figures, key),
        "badge": badge_of(table),
        "badge_words": BADGES.get(badge_of(table), ""),
        "images": images_in_words(section),
        "wide": wide,
        "figures": views,
        "note": " ".join(filter(None, (note, convergence_note(section.averaged())))),
        "labels": own,
        "rows": cells[:shown],
        "more_rows": cells[shown:],
        "strips": pictures,
        "fold": fold_title(
            max(0, len(views) - 1),
            len(cells[shown:]),
            sum(len(each.pictures) for each in pictures),
            sum(row.clearness == "clear" for row in table[shown:]),
        ),
        "key": key,
        "footnote": _footnote(section),
    }


def images_in_words(section: Section) -> str:
    """The number of images of a section, or its range over models; empty if it is not known.

    Sections have different numbers of images, so that the same number, such as accuracy on clean images, may differ.
    """
    given = [each.provenance.get("images") for each in section.averaged()]
    flat = [each for item in given for each in (item if isinstance(item, list) else [item])]
    counts = sorted({each for each in flat if isinstance(each, int) and each > 0})
    if not counts:
        return ""
    many = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    noun = "test image" if section.kind == "training" else "image"
    return f"n = {many} {noun}{'s' if counts[-1] > 1 else ''}"


def badge_of(table: Sequence[Row]) -> str:
    """A key of `BADGES` for the first row of a table; empty without a comparison.

    `part`: the first number is within the noise, but another number of the section differs clearly.
    """
    first = table[0].clearness if table else ""
    return "part" if first == "unclear" and any(row.clearness == "clear" for row in table) else first


def fold_title(figures: int, numbers: int, pictures: int = 0, clear: int = 0) -> str:
    """The title of a fold; `clear` is the number of the numbers in which a model differs clearly.

    >>> fold_title(2, 0), fold_title(1, 3, 8), fold_title(0, 0), fold_title(0, 5, clear=2)
    ('2 more figures', '8 images, 1 more figure, 3 more numbers', 'The result in words', '5 more numbers (2 differ)')
    """
    counts = ((pictures, "image"), (figures, "more figure"), (numbers, "more number"))
    parts = [f"{count} {noun}{'s' if count > 1 else ''}" for count, noun in counts if count]
    differing = f" ({clear} differ{'s' if clear == 1 else ''})" if clear else ""
    return f"{', '.join(parts)}{differing}" if parts else "The result in words"


def claim_of(figures: Sequence[Figure | Fragment], key: Row | None) -> str:
    """The claim of the first figure, else that of the key number; empty if there is neither."""
    first = next((each.headline for each in figures if isinstance(each, Figure)), None)
    if first is not None and (first.row is not None or key is None):
        return first.title
    if key is not None:
        return state(key, Phrase(f"{key.what} is"))
    return first.title if first is not None else ""


def _file(section: Section) -> str:
    return f"{section.kind}{'-' if section.variant else ''}{section.variant}"


def draw_section(section: Section) -> tuple[list[Figure | Fragment], str]:
    """The figures of a section and a note.

    Values that the drawing of their kind does not support, such as those of another version, are drawn by the names of
    their axes, and the note says so.
    """
    measurements = section.averaged()
    try:
        return draw(section.kind, measurements), ""
    except ExtensionError as error:
        warn_once(str(error))
        return [*draw_by_axes(measurements)], f"The {error}; each value is drawn by its axes instead."
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        note = f"The drawing of {section.kind} cannot draw these values ({type(error).__name__}: {error})"
        if section.shows_pictures:
            return [], f"{note}."
        return [*draw_by_axes(measurements)], f"{note}; each value is drawn by its axes instead."


def _row(row: Row, labels: Sequence[str]) -> dict[str, Any]:
    return {"name": row.title, "cells": [_cell(row, label) for label in labels]}


def _cell(row: Row, label: str) -> dict[str, str]:
    """A table cell: the number, its count if there are few samples, and its difference from the baseline."""
    if label not in row.numbers:
        return {"value": "–"}
    number, count = row.numbers[label], row.counts.get(label, "")
    cell = {"value": value_text(number, row.scale), "count": count}
    if count and math.isnan(number.half_width):
        cell = {"value": count, "count": ""}  # a count is more informative than a percentage without an error
    difference = row.differences.get(label)
    if difference is not None:
        kind = clearness(difference)
        larger = "▲" if difference.value > 0 else "▼"
        cell |= {"difference": difference_text(difference, row.scale), "state": kind}
        cell |= {"symbol": _SYMBOLS.get(kind, larger), "words": _WORDS[kind]}
    return cell


def _footnote(section: Section) -> str:
    """The origin of extensions, the repeats, and what numbers by epoch mean; empty if there is nothing to explain."""
    notes = []
    used = {"figures": origin("figures", section.kind)}
    for each in section.averaged():
        used |= each.provenance.get("extensions", {})
    added = [f"{name} ({where})" for name, where in sorted(used.items()) if where]
    if added:
        notes.append(f"From extensions: {', '.join(added)}.")
    repeats = max(map(len, section.repeats.values()))
    if repeats > 1 and not section.shows_pictures:
        fewer = "up to " if min(map(len, section.repeats.values())) < repeats else ""
        runs = any(isinstance(each, Combined) and each.over == "runs" for each in section.averaged())
        over = "runs" if runs else "disjoint parts of the images, for one set of weights"
        notes.append(f"Numbers are combined over {fewer}{repeats} {over}.")
    if any(dims[:1] == ("epoch",) for each in section.averaged() for dims in each.dims.values()):
        notes.append("Numbers by epoch are those of the last epoch.")
    if section.kind == "training" and any({"train_loss", "loss"} <= each.values.keys() for each in section.averaged()):
        notes.append(
            "The training loss is the mean over the epoch of what is minimised: with augmented images, label smoothing "
            "and added losses where the recipe has them. The test loss has none of these and may be lower."
        )
    if section.kind == "training" and len(section.repeats) > 1 and repeats == 1:
        notes.append("Differences are not paired by image, so their intervals are wider than those of calibration.")
    return " ".join(notes)
