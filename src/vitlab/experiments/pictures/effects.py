"""The claims of an experiment as a picture: the paper's effect, ours with its interval, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vitlab.core.experiment import Claim, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.record import judge
from vitlab.reporting.experiment_page import ours_in_words, paper_in_words
from vitlab.reporting.svg.canvas import Canvas, text_width

__all__ = ["draw_effects", "verdict_line", "verdict_lines", "write_lines"]

_LINE, _MIDDLE, _HALF = 44, 190, 150


def draw_effects(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Returns a row for each claim; each row has its own scale, with 0 in the middle."""
    verdicts = judge(experiment, results, scale)
    longest = max(text_width(verdict.claim) for verdict in verdicts)
    about = f"Scale {scale}. Effects are positive in the direction of the claim; each row has its own scale."
    if scale == "small" and any(job.recipe for job, _ in results.entries):
        about += " The trained networks are smaller than the paper's."
    width = max(400 + 0.95 * longest, 40 + 0.95 * text_width(about))
    canvas = Canvas(round(width), 110 + _LINE * len(verdicts), experiment.title, about)
    canvas.text(_MIDDLE - _HALF, 76, "paper", "paper small")
    canvas.text(_MIDDLE - _HALF + 46, 76, "ours, with the 95 % interval", "ours small")
    canvas.line(_MIDDLE, 84, _MIDDLE, 92 + _LINE * len(verdicts), "zero")
    for number, (claim, verdict) in enumerate(zip(experiment.claims, verdicts, strict=True)):
        _row(canvas, claim, verdict, 104 + _LINE * number)
    return str(canvas)


def verdict_line(claim: Claim, verdict: Verdict) -> str:
    """The outcome of a verdict and its numbers; a claim that is only true or false has none."""
    if verdict.paper_value is None and verdict.interval is None:
        return verdict.outcome
    parts = [
        verdict.outcome,
        f"paper {paper_in_words(claim)}" if claim.paper is not None else "",
        f"ours {ours_in_words(claim, verdict, interval=True)}" if verdict.our_value is not None else "",
    ]
    return "; ".join(part for part in parts if part)


def verdict_lines(experiment: Experiment, results: Results, scale: Scale) -> list[str]:
    """A line for each claim: its verdict, then the claim."""
    pairs = zip(experiment.claims, judge(experiment, results, scale), strict=True)
    return [f"{verdict_line(claim, verdict)}: {verdict.claim}" for claim, verdict in pairs]


def write_lines(canvas: Canvas, top: float, lines: Sequence[str]) -> None:
    """Write lines below each other, the first one at `top`."""
    for number, line in enumerate(lines):
        canvas.text(20, top + 20 * number, line, "soft small")


def _row(canvas: Canvas, claim: Claim, verdict: Verdict, y: float) -> None:
    canvas.text(_MIDDLE + _HALF + 30, y, verdict.claim)
    canvas.text(_MIDDLE + _HALF + 30, y + 17, verdict_line(claim, verdict), "soft small")
    ends = verdict.interval or ()
    if verdict.paper_value is None and not ends:
        return
    numbers = [each for each in (verdict.paper_value, verdict.our_value, *ends) if each is not None]
    largest = max((abs(each) for each in numbers if math.isfinite(each)), default=0.0) or 1.0

    def place(value: float) -> float:
        return _MIDDLE + _HALF * max(-1.0, min(1.0, value / largest))

    if verdict.paper_value is not None:
        canvas.add("rect", "mark paper", x=place(verdict.paper_value) - 4, y=y - 9, width=8, height=8)
    if verdict.our_value is not None:
        if ends and all(math.isfinite(end) for end in ends):
            canvas.line(place(ends[0]), y + 9, place(ends[1]), y + 9, "bar ours")
        canvas.add("circle", "mark ours", cx=place(verdict.our_value), cy=y + 9, r=4.5)
