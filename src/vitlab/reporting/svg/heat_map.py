"""A matrix of numbers from 0 as squares in eight steps of one colour."""

from __future__ import annotations

import numpy as np

from vitlab.reporting.svg.canvas import Canvas

__all__ = ["HEAT", "draw_heat_map"]

_STEPS = 8
#: The style of heat maps.
HEAT = "".join(
    f"\n.heat{step} {{ fill: var(--bound); fill-opacity: {step / (_STEPS - 1):.2f}; }}" for step in range(1, _STEPS)
)


def steps(values: np.ndarray) -> np.ndarray:
    """The step of each number, from 0 for 0 to 7 for the largest one.

    >>> steps(np.array([0.0, 0.1, 0.5, 1.0]))
    array([0, 1, 4, 7])
    """
    top = float(values.max()) or 1.0
    found: np.ndarray = np.rint(values / top * (_STEPS - 1)).astype(int)
    return found


def draw_heat_map(canvas: Canvas, values: np.ndarray, left: float, top: float, side: float) -> None:
    """Draw a matrix, its first row at the top; neighbours in a column with the same step are one rectangle.

    Args:
        canvas: with the style `HEAT`.
        values: (n, n), not negative.
        left, top, side: the square in pixels.
    """
    found = steps(values)
    unit = side / len(found)
    for step in range(1, _STEPS):
        pieces = []
        for column in range(found.shape[1]):
            edges = np.flatnonzero(np.diff(np.concatenate(([0], found[:, column] == step, [0]))))
            pieces += [f"M{column} {low}v{high - low}h1v{low - high}z" for low, high in edges.reshape(-1, 2)]
        if pieces:
            place = f"translate({left:g} {top:g}) scale({unit:.4f})"
            canvas.add("path", f"heat{step}", transform=place, d="".join(pieces))
    canvas.add("rect", "frame", x=left, y=top, width=side, height=side)
