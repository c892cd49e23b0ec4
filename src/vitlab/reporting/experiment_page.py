"""The page of an experiment: its claims with verdicts, the published numbers, and the figures of its measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitlab.core.errors import VitlabError
from vitlab.core.experiment import Published
from vitlab.core.measurement import Measurement
from vitlab.core.store import write_atomically
from vitlab.core.verdicts import Verdict
from vitlab.reporting.page import contents, fill_template

__all__ = ["experiment_page", "interval_in_words", "number_in_words", "published_table"]

#: Kinds whose values are read by a claim and not drawn.
_NOT_DRAWN = ("blocks",)


def experiment_page(
    path: Path,
    title: str,
    about: str,
    verdicts: Sequence[Verdict],
    published: Sequence[Published],
    measurements: Sequence[Measurement],
    failures: Sequence[str] = (),
) -> Path:
    """Write the page of an experiment.

    Args:
        path: the file to write.
        title: the table or figure.
        about: one sentence: the scale and the command.
        verdicts: one per claim.
        published: the numbers of the paper.
        measurements: with the arm, and the seed if there are several, as the name of the model.
        failures: reasons of failed jobs.
    """
    drawn = [each for each in measurements if each.kind not in _NOT_DRAWN]
    found: dict[str, Any] = {"models": [], "sections": []}
    try:
        found |= contents(drawn) if drawn else {}
    except VitlabError as error:
        failures = [*failures, f"The measurements cannot be drawn: {error}"]
    columns, rows = published_table(published)
    claims = [claim_row(verdict) for verdict in verdicts]
    page = {"about": about, "claims": claims, "columns": columns, "rows": rows, "failures": failures}
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as file:
        file.write(fill_template("experiment.html.j2", title=title, **page, **found).encode())
    return path


def claim_row(verdict: Verdict) -> dict[str, str]:
    """The cells of a claim's row."""
    return {
        "claim": verdict.claim,
        "paper": number_in_words(verdict.paper_value),
        "ours": number_in_words(verdict.our_value),
        "interval": interval_in_words(verdict.interval),
        "smallest": number_in_words(verdict.smallest_relevant),
        "outcome": verdict.outcome,
        "why": verdict.why,
    }


def number_in_words(value: float | None) -> str:
    """A number with four digits; a dash for None and NaN.

    >>> number_in_words(1.23456), number_in_words(1260.0), number_in_words(None)
    ('1.235', '1260', '–')
    """
    return "–" if value is None or math.isnan(value) else f"{value:.4g}"


def interval_in_words(interval: Sequence[float | None] | None) -> str:
    """An interval; a dash without one, or with a single run.

    >>> interval_in_words((0.5, 1.25)), interval_in_words((float("-inf"), float("inf")))
    ('0.5 to 1.25', '–')
    """
    ends = [] if interval is None else [end for end in interval if end is not None and math.isfinite(end)]
    return f"{ends[0]:.3g} to {ends[1]:.3g}" if len(ends) == 2 else "–"


def published_table(published: Sequence[Published]) -> tuple[list[str], dict[str, list[str]]]:
    """The columns, and the cells of each row, of the published numbers; rows that are only quoted are marked.

    >>> published_table([Published("ViT", "top-1", 79.9), Published("DeiT", "top-1", 80.0, runs=False)])
    (['top-1'], {'ViT': ['79.9'], 'DeiT (not run)': ['80']})
    """
    columns = list(dict.fromkeys(number.column for number in published))
    cells = {(number.row, number.column): _printed(number.value) for number in published}
    quoted = {number.row for number in published if not number.runs}
    rows = dict.fromkeys(number.row for number in published)
    return columns, {
        f"{row} (not run)" if row in quoted else row: [cells.get((row, column), "") for column in columns]
        for row in rows
    }


def _printed(value: float | None) -> str:
    return "no number" if value is None else f"{value:g}"
