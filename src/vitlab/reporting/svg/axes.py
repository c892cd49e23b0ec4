"""Axes with round ticks, and what is drawn in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vitlab.reporting.svg.canvas import Canvas

__all__ = ["Axis", "Panel", "draw_lines", "index_axis", "layer_axis", "round_axis"]


@dataclass(frozen=True)
class Axis:
    """Maps numbers to pixels.

    Args:
        low, high: the range of numbers.
        start, end: the pixels of `low` and `high`.
        label: with the unit.
        ticks: numbers with a tick.
    """

    low: float
    high: float
    start: float
    end: float
    label: str
    ticks: tuple[float, ...]

    def __call__(self, value: float) -> float:
        """Returns the pixel of a number."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def round_axis(values: Sequence[float], start: float, end: float, label: str) -> Axis:
    """Returns an axis over all finite numbers, from tick to tick.

    >>> round_axis([0.2, 4.1], 0, 100, "x").ticks
    (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
    """
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    span = max(finite) - min(finite) or 1.0
    magnitude = 10.0 ** math.floor(math.log10(span / 5))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if span / (factor * magnitude) <= 6)
    first, last = math.floor(min(finite) / step), math.ceil(max(finite) / step)
    ticks = tuple(round(index * step, 10) for index in range(first, max(last, first + 1) + 1))
    return Axis(ticks[0], ticks[-1], start, end, label, ticks)


def layer_axis(layers: int, start: float, end: float) -> Axis:
    """Returns an axis over layers 1 to N, with half a layer on either side."""
    return Axis(0.5, layers + 0.5, start, end, "layer", tuple(range(1, layers + 1)))


def index_axis(count: int, start: float, end: float, label: str) -> Axis:
    """Returns an axis over 1 to N, with half a step on either side and about nine ticks.

    >>> index_axis(16, 0, 160, "block").ticks
    (1, 3, 5, 7, 9, 11, 13, 15)
    """
    return Axis(0.5, count + 0.5, start, end, label, tuple(range(1, count + 1, 1 + count // 10)))


@dataclass(frozen=True)
class Panel:
    """A part of a picture with two axes.

    Args:
        canvas: the picture.
        x, y: the axes; `y.start` is below `y.end`.
        title: above the panel.
    """

    canvas: Canvas
    x: Axis
    y: Axis
    title: str = ""

    def frame(self, shaded: Sequence[tuple[float, float]] = ()) -> None:
        """Draw shaded intervals of x, grid, ticks, labels and frame."""
        left, right, bottom, top = self.x.start, self.x.end, self.y.start, self.y.end
        for low, high in shaded:
            wide = self.x(high) - self.x(low)
            self.canvas.add("rect", "shade", x=self.x(low), y=top, width=wide, height=bottom - top)
        numbers = [f"{value:g}".replace("-", "−") for value in self.y.ticks]
        for value, number in zip(self.y.ticks, numbers, strict=True):
            self.canvas.line(left, self.y(value), right, self.y(value), "zero" if value == 0 else "grid")
            self.canvas.text(left - 8, self.y(value) + 4, number, "soft small end")
        for value in self.x.ticks:
            self.canvas.text(self.x(value), bottom + 16, f"{value:g}".replace("-", "−"), "soft small middle")
        self.canvas.add("rect", "frame", x=left, y=top, width=right - left, height=bottom - top)
        self.canvas.text((left + right) / 2, bottom + 36, self.x.label, "middle")
        beside = max(46, *(12 + 6.2 * len(number) for number in numbers))  # not over the numbers
        self.canvas.text(left - beside, (top + bottom) / 2, self.y.label, "middle", turn=-90)
        self.canvas.text(left, top - 10, self.title, "head")

    def curve(self, xs: Sequence[float], ys: Sequence[float], class_: str, *, marks: bool = True) -> None:
        """Draw a curve, with a circle at each point."""
        points = [(self.x(x), self.y(y)) for x, y in zip(xs, ys, strict=True) if math.isfinite(y)]
        self.canvas.curve(points, class_)
        for x, y in points if marks else ():
            self.canvas.add("circle", f"mark {class_}", cx=x, cy=y, r=3)

    def level(self, y: float, class_: str) -> None:
        """Draw a horizontal line over the whole panel."""
        self.canvas.curve([(self.x.start, self.y(y)), (self.x.end, self.y(y))], class_)

    def note(self, *lines: str) -> None:
        """Write lines in the middle of the panel."""
        middle = (self.x.start + self.x.end) / 2
        for index, line in enumerate(lines):
            self.canvas.text(middle, (self.y.start + self.y.end) / 2 + 18 * index, line, "soft middle")


def draw_lines(canvas: Canvas, x: float, y: float, entries: Mapping[str, str]) -> None:
    """Draw lines with what they mean, in a row: words -> class of the line."""
    for words, kind in entries.items():
        canvas.curve([(x, y - 4), (x + 34, y - 4)], kind)
        canvas.text(x + 42, y, words)
        x += 66 + 7 * len(words)
