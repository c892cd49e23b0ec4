"""Figures as rows of panels of one size, with a legend and the verdicts below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vitlab.core.experiment import Results, Scale
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.pictures.effects import verdict_lines, write_lines
from vitlab.reporting.svg.axes import Axis, Panel, draw_lines, round_axis
from vitlab.reporting.svg.canvas import Canvas, text_width
from vitlab.reporting.svg.colour_scale import STYLE

__all__ = ["HIGH", "WIDE", "Box", "DrawPanel", "Lines", "figure", "note_missing"]

WIDE, HIGH = 320, 220  # of a panel without its labels
_LEFT, _TOP, _COLUMN, _ROW = 80, 104, 420, 316

#: Arm -> what it is called, and the class of its line.
Lines = Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Box:
    """The place of a panel in a picture.

    Args:
        canvas: the picture.
        left, top: the pixels of the upper left corner.
    """

    canvas: Canvas
    left: float
    top: float

    def x(self, values: Sequence[float], label: str) -> Axis:
        """Returns a horizontal axis over numbers."""
        return round_axis(values, self.left, self.left + WIDE, label)

    def y(self, values: Sequence[float], label: str) -> Axis:
        """Returns a vertical axis over numbers."""
        return round_axis(values, self.top + HIGH, self.top, label)


#: Draws a panel from the results of an experiment.
DrawPanel = Callable[[Box, Results], None]


def figure(*rows: Sequence[DrawPanel], legend: Mapping[str, str] | None = None) -> Callable[..., str]:
    """Returns the function that draws a figure from the results of its experiment.

    Args:
        rows: the panels in the order of the paper.
        legend: what lines mean: words -> class of the line.
    """

    def draw(experiment: Experiment, results: Results, scale: Scale) -> str:
        printed = any(each.value is not None for each in experiment.published)
        paper = "Numbers that the paper prints are orange, or below." if printed else "The paper prints no numbers."
        about = f"Scale {scale}. Ours: mean over runs and parts of the images. {paper}"
        lines = verdict_lines(experiment, results, scale)
        words = (1.3 * text_width(experiment.title), text_width(about), *(0.85 * text_width(line) for line in lines))
        wide = max(_LEFT + _COLUMN * max(map(len, rows)), 40 + max(words))
        bottom = _TOP + _ROW * len(rows) - 6
        canvas = Canvas(round(wide), bottom + 50 + 20 * len(lines), experiment.title, about, STYLE)
        for row, panels in enumerate(rows):
            for column, panel in enumerate(panels):
                panel(Box(canvas, _LEFT + _COLUMN * column, _TOP + _ROW * row), results)
        draw_lines(canvas, 20, bottom, legend or {})
        write_lines(canvas, bottom + 34, lines)
        return str(canvas)

    return draw


def note_missing(panel: Panel, names: Sequence[str], missing: Sequence[str]) -> None:
    """Write which of the names of a panel have no result: not run, or not a finite number."""
    if len(missing) == len(names):
        panel.note("not run at this scale")
    elif missing:
        panel.canvas.text(panel.x.start, panel.y.start + 54, f"no result: {', '.join(missing)}", "soft small")
