"""A function of two numbers as a surface, coloured by another one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vitlab.reporting.svg.canvas import Canvas
from vitlab.reporting.svg.colour_scale import level

__all__ = ["draw_surface"]

#: Returns the pixels of a point of the grid, (i, j), at a height from 0 to 1.
Place = Callable[[int, int, float], tuple[float, float]]


def draw_surface(
    canvas: Canvas,
    height: np.ndarray,
    colour: np.ndarray,
    left: float,
    bottom: float,
    names: tuple[str, str],
    wide: float = 440.0,
) -> Place:
    """Draw a surface, seen from the corner where both coordinates are largest.

    Args:
        canvas: with the style of `colour_scale`.
        height: (n, n), from 0 to 1; the first coordinate along the first axis.
        colour: (n, n), from 0 to 1.
        left, bottom: the pixels of the lower left corner.
        names: of the coordinates.
        wide: the width in pixels; the height is 5/6 of it.

    Returns:
        The function that maps points to pixels.
    """
    count, size = len(height), wide / 440
    unit = size * 210 / (count - 1)

    def place(i: int, j: int, z: float) -> tuple[float, float]:
        x = left + size * 220 + (j - i) * unit
        return x, bottom - size * 40 - (2 * (count - 1) - i - j) * unit * 0.42 - size * 150 * z

    for i in range(count - 1):  # from the back to the front
        for j in range(count - 1):
            corners = [(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)]
            mean = float(np.mean([colour[corner] for corner in corners]))
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(a, b, height[a, b]) for a, b in corners))
            canvas.add("polygon", f"level{level(mean)}", points=points)
    last = count - 1
    for corner, other in (((0, last), (last, last)), ((last, 0), (last, last))):
        canvas.line(*place(*corner, 0.0), *place(*other, 0.0), "zero")
    for name, (i, j), kind in zip(names, ((last // 2, last), (last, last // 2)), ("", "end"), strict=True):
        x, y = place(i, j, 0.0)
        canvas.text(x + (26 if not kind else -26), y + 22, name, kind)
    return place
