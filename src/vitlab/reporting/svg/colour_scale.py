"""Colours for numbers from 0 to 1."""

from __future__ import annotations

from vitlab.reporting.svg.canvas import Canvas

__all__ = ["STYLE", "draw_scale", "level"]

#: Eight steps of viridis, from low to high.
_COLOURS = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")

#: CSS of the classes `level0` to `level7` (areas), `depth0` to `depth7` (lines), `diagonal`, and `light`, a background
#: on which lines of all colours are seen.
STYLE = "\n.diagonal { stroke: #000000; } .light { fill: #ffffff; }" + "".join(
    f"\n.level{index} {{ fill: {colour}; }} .depth{index} {{ stroke: {colour}; }}"
    for index, colour in enumerate(_COLOURS)
)


def level(share: float) -> int:
    """Returns the number of the colour of a number from 0 to 1.

    >>> level(0.0), level(0.5), level(1.0)
    (0, 4, 7)
    """
    return min(int(share * len(_COLOURS)), len(_COLOURS) - 1)


def draw_scale(canvas: Canvas, x: float, y: float, low: str, high: str) -> None:
    """Draw the colours in a row of 192 × 12 pixels, with the words for 0 before them and those for 1 behind.

    Args:
        canvas: with the style `STYLE`.
        x, y: the pixels of the upper left corner of the first colour.
        low, high: what the first and the last colour mean.
    """
    for index in range(len(_COLOURS)):
        canvas.add("rect", f"level{index}", x=x + 24 * index, y=y, width=24, height=12)
    canvas.text(x - 10, y + 11, low, "small end")
    canvas.text(x + 24 * len(_COLOURS) + 8, y + 11, high, "small")
