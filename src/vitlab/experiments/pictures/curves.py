"""Pictures with curves side by side, and the claims with their verdicts below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vitlab.core.experiment import Scale
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.pictures.effects import write_lines
from vitlab.reporting.svg.axes import Axis, Panel, round_axis
from vitlab.reporting.svg.canvas import Canvas, text_width

__all__ = ["Curve", "Curves", "draw_curves", "named_axis", "network_at", "width_of"]

_WIDE, _HIGH, _LEFT, _TOP, _STEP = 300, 220, 84, 92, 400


@dataclass(frozen=True)
class Curve:
    """A curve of a panel.

    Args:
        words: what it is, for the legend.
        kind: its class in the picture: `ours` or `ink`, and `dash`.
        xs, ys: its points; empty if it was not run.
        marks: whether each point has a circle.
    """

    words: str
    kind: str
    xs: Sequence[float]
    ys: Sequence[float]
    marks: bool = True


@dataclass(frozen=True)
class Curves:
    """A panel with curves.

    Args:
        title: above the panel.
        x, y: labels of the axes, with units.
        curves: the curves.
        places: names of the places 0, 1, … along x; empty for an axis of numbers.
        include: numbers that the vertical axis has in any case.
        levels: horizontal lines: what they are -> number and class.
    """

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    places: Sequence[str] = ()
    include: Sequence[float] = ()
    levels: Mapping[str, tuple[float, str]] = field(default_factory=dict)


def network_at(scale: Scale, small: str, full: str) -> str:
    """Returns the network of a scale in words, given those of `small` and of the larger ones.

    >>> network_at("small", "ViT-Ti on CIFAR-100", "ViT-S"), network_at("full", "ViT-Ti on CIFAR-100", "ViT-S")
    ('ViT-Ti on CIFAR-100', 'ViT-S')
    """
    return {"smoke": "a tiny network", "small": small}.get(scale, full)


def width_of(lines: Sequence[str]) -> float:
    """Returns the width of a picture with these lines."""
    return 40 + 0.85 * max(map(text_width, lines), default=0.0)


def named_axis(canvas: Canvas, names: Sequence[str], left: float, right: float, bottom: float, label: str) -> Axis:
    """Returns an axis over the places 0, 1, … and writes their names below it."""
    axis = Axis(-0.5, len(names) - 0.5, left, right, label, ())
    for place, name in enumerate(names):
        canvas.text(axis(place), bottom + 16, name, "soft small middle")
    return axis


def draw_curves(experiment: Experiment, about: str, panels: Sequence[Curves], lines: Sequence[str]) -> str:
    """Returns the picture of panels side by side.

    Args:
        experiment: the experiment.
        about: a line below the title.
        panels: in the order of the figure.
        lines: below the legend.
    """
    legend: dict[str, tuple[str, bool]] = {}
    for panel in panels:
        for curve in panel.curves:
            legend[curve.words] = (curve.kind, len(curve.xs) > 0 or legend.get(curve.words, ("", False))[1])
        legend |= {words: (kind, True) for words, (_, kind) in panel.levels.items()}
    bottom = _TOP + _HIGH
    width = max(_STEP * len(panels) + 20, width_of([*lines, about]))
    canvas = Canvas(round(width), bottom + 70 + 20 * (len(legend) + len(lines)), experiment.title, about)
    for index, each in enumerate(panels):
        _draw_panel(canvas, each, _LEFT + _STEP * index, bottom)
    for index, (words, (kind, run)) in enumerate(legend.items()):
        y = bottom + 62 + 20 * index
        canvas.curve([(20, y - 4), (54, y - 4)], kind)
        canvas.text(62, y, words if run else f"{words}: not run at this scale")
    write_lines(canvas, bottom + 66 + 20 * len(legend), lines)
    return str(canvas)


def _draw_panel(canvas: Canvas, each: Curves, left: float, bottom: float) -> None:
    right = left + _WIDE
    if each.places:
        x = named_axis(canvas, each.places, left, right, bottom, each.x)
    else:
        x = round_axis([0.0, *(value for curve in each.curves for value in curve.xs)], left, right, each.x)
    levels = [value for value, _ in each.levels.values()]
    ys = [value for curve in each.curves for value in curve.ys]
    panel = Panel(canvas, x, round_axis([*ys, *each.include, *levels], bottom, _TOP, each.y), each.title)
    panel.frame()
    if not ys:
        panel.note("not run at this scale")
    for value, kind in each.levels.values():
        panel.level(value, kind)
    for curve in each.curves:
        if curve.xs:
            panel.curve(curve.xs, curve.ys, curve.kind, marks=curve.marks)
