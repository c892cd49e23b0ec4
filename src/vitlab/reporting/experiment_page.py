"""The page of an experiment: its claims with verdicts, the published numbers, and the figures of its measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitlab.core.errors import VitlabError
from vitlab.core.experiment import Claim, Published
from vitlab.core.measurement import Measurement
from vitlab.core.store import write_atomically
from vitlab.core.verdicts import Verdict
from vitlab.reporting.findings import error_places
from vitlab.reporting.number_text import minus
from vitlab.reporting.page import contents, fill_template

__all__ = ["experiment_page", "interval_in_words", "ours_in_words", "paper_in_words", "published_table"]

#: Kinds whose values are read by a claim and not drawn.
_NOT_DRAWN = ("blocks",)


def experiment_page(
    path: Path,
    title: str,
    about: str,
    claims: Sequence[Claim],
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
        claims: of the experiment.
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
    judged = [claim_row(claim, verdict) for claim, verdict in zip(claims, verdicts, strict=True)]
    page = {"about": about, "claims": judged, "columns": columns, "rows": rows, "failures": failures}
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as file:
        file.write(fill_template("experiment.html.j2", title=title, **page, **found).encode())
    return path


def claim_row(claim: Claim, verdict: Verdict) -> dict[str, str]:
    """The cells of a claim's row."""
    return {
        "claim": verdict.claim,
        "paper": paper_in_words(claim),
        "ours": ours_in_words(claim, verdict),
        "interval": interval_in_words(verdict.interval),
        "smallest": "–" if claim.deterministic else _with_unit(_short(verdict.smallest_relevant), claim),
        "outcome": verdict.outcome,
        "why": verdict.why,
    }


def paper_in_words(claim: Claim) -> str:
    """The published effect or count; `sign only` or `yes or no` for claims without a number.

    >>> paper_in_words(Claim("a", "b", 0.9, unit="points")), paper_in_words(Claim("a", "b"))
    ('0.9 points', 'sign only')
    """
    if claim.paper is None:
        return "yes or no" if claim.deterministic else "sign only"
    return _with_unit(_short(claim.paper), claim)


def ours_in_words(claim: Claim, verdict: Verdict, *, interval: bool = False) -> str:
    """Our effect rounded to its interval, or our count; a dash without runs.

    Args:
        claim: the claim.
        verdict: of the claim.
        interval: whether to add the interval, if there is one.

    >>> found = Verdict("b", 0.9, 1.1234, (0.792, 1.45), 0.45, "holds", "")
    >>> ours_in_words(Claim("a", "b", 0.9, unit="points"), found, interval=True)
    '1.12 (0.79 to 1.45) points'
    """
    if verdict.our_value is None or math.isnan(verdict.our_value):
        return "–"
    if claim.deterministic and claim.paper is None:
        return "yes" if verdict.outcome == "holds" else "no"
    ends = _finite(verdict.interval)
    number = minus(f"{verdict.our_value:.{_places(ends)}f}") if ends else _short(verdict.our_value)
    return _with_unit(f"{number} ({interval_in_words(ends)})" if interval and ends else number, claim)


def interval_in_words(interval: Sequence[float | None] | None) -> str:
    """An interval, rounded to two digits of its half width; a dash without one, or with a single run.

    >>> interval_in_words((0.5, 1.25)), interval_in_words((-0.00096, 0.0382)), interval_in_words((0.004, 0.9))
    ('0.50 to 1.25', '−0.001 to 0.038', '0.004 to 0.900')
    >>> interval_in_words((float("-inf"), float("inf")))
    '–'
    """
    ends = _finite(interval)
    return minus(" to ".join(f"{end:.{_places(ends)}f}" for end in ends)) if ends else "–"


def _finite(interval: Sequence[float | None] | None) -> tuple[float, ...]:
    """Both ends of an interval; nothing unless both are finite."""
    ends = tuple(end for end in interval or () if end is not None and math.isfinite(end))
    return ends if len(ends) == 2 else ()


def _places(ends: Sequence[float]) -> int:
    """Decimals of an interval and of its mean: more if an end would be rounded to 0, whose sign decides."""
    low, high = ends
    places = error_places((high - low) / 2)
    while places < 6 and any(end and not round(end, places) for end in ends):
        places += 1
    return places


def _short(value: float) -> str:
    """A number without an interval, with four digits."""
    return minus(f"{value:.4g}")


def _with_unit(number: str, claim: Claim) -> str:
    """A number and its unit; points have a decimal, as the tables of the papers."""
    tenths = ".0" if claim.unit.startswith("points") and number.isdigit() else ""
    return f"{number}{tenths} {claim.unit}".rstrip()


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
