"""Block plans as pictures, as in HDVW Figs. 3, 11 and D.5: white Conv, grey MSA and blue subsampling blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vitlab.reporting.svg.canvas import Canvas, text_width

__all__ = ["Block", "Plan", "draw_plan", "legend", "plan_width"]

_WIDE, _HIGH, _GAP = 34, 34, 5


@dataclass(frozen=True)
class Block:
    """A block of a plan.

    Args:
        kind: `Conv`, `MSA`, `MLP` or `smoothing`.
        subsamples: whether its output is smaller than its input.
        text: is written into it, for example the number of heads.
    """

    kind: str
    subsamples: bool = False
    text: str = ""


@dataclass(frozen=True)
class Plan:
    """The blocks of a model.

    Args:
        title: the name of the model.
        stages: the blocks of each stage, in order.
        notes: a line below each stage.
    """

    title: str
    stages: tuple[tuple[Block, ...], ...]
    notes: tuple[str, ...]


def plan_width(plan: Plan) -> float:
    """The width of a plan in pixels."""
    return 40 + sum(_stage_width(plan, index) for index in range(len(plan.stages)))


def draw_plan(canvas: Canvas, plan: Plan, top: float) -> None:
    """Draw a plan in one row, from the input at the left to the output at the right; it is 92 pixels high."""
    canvas.text(20, top, plan.title, "head")
    x = 20.0
    for index, (blocks, note) in enumerate(zip(plan.stages, plan.notes, strict=True)):
        place = x
        for block in blocks:
            wide = _WIDE // 3 if block.kind == "smoothing" else _WIDE
            kind = "sub" if block.subsamples else {"MSA": "msa", "smoothing": "ink"}.get(block.kind, "conv")
            look = {"rx": 3, "style": "fill: var(--ink)"} if block.kind == "smoothing" else {"rx": 3}
            canvas.add("rect", f"{kind} box", x=place, y=top + 14, width=wide, height=_HIGH, **look)
            canvas.text(place + wide / 2, top + 36, block.text, "small middle")
            place += wide + _GAP
        canvas.text(x, top + 64, note, "soft small")
        x += _stage_width(plan, index)


def legend(canvas: Canvas, y: float, kinds: Sequence[str]) -> None:
    """Draw what the colours of some kinds of blocks mean."""
    names = {"Conv": "conv", "MLP": "conv", "MSA": "msa", "subsampling": "sub", "smoothing": "ink"}
    x = 20.0
    for kind in kinds:
        look = {"style": "fill: var(--ink)"} if kind == "smoothing" else {}
        canvas.add("rect", f"{names[kind]} box", x=x, y=y - 12, width=16, height=16, rx=2, **look)
        words = {"MSA": "MSA (number: heads)", "smoothing": "spatial smoothing"}.get(kind, kind)
        canvas.text(x + 24, y + 1, words)
        x += 50 + text_width(words)


def _stage_width(plan: Plan, index: int) -> float:
    wide = sum((_WIDE // 3 if block.kind == "smoothing" else _WIDE) + _GAP for block in plan.stages[index])
    return max(float(wide), 0.85 * text_width(plan.notes[index])) + 22
