"""A function of two numbers as a surface, coloured by another one."""

from __future__ import annotations

import numpy as np

from vitlab.reporting.svg.canvas import Canvas

__all__ = ["COLOURS", "STYLE", "draw_surface"]

#: Eight steps of viridis, from low to high.
COLOURS = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")
STYLE = "\n.diagonal { stroke: #000000; }" + "".join(
    f"\n.level{index} {{ fill: {colour}; }}" for index, colour in enumerate(COLOURS)
)


def draw_surface(canvas: Canvas, height: np.ndarray, colour: np.ndarray, left: float, bottom: float) -> None:
    """Draw a surface of about 440 × 360 pixels, seen from the corner where both coordinates are largest.

    Args:
        canvas: with the style `STYLE`.
        height: (n, n), from 0 to 1; the first coordinate along the first axis.
        colour: (n, n), from 0 to its maximum.
        left, bottom: the pixels of the lower left corner.
    """
    count = len(height)
    unit = 210 / (count - 1)

    def place(i: int, j: int, z: float) -> tuple[float, float]:
        x = left + 220 + (j - i) * unit
        return x, bottom - 40 - (2 * (count - 1) - i - j) * unit * 0.42 - 150 * z

    top = float(colour.max()) or 1.0
    for i in range(count - 1):  # from the back to the front
        for j in range(count - 1):
            corners = [(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)]
            level = np.mean([colour[corner] for corner in corners]) / top
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(a, b, height[a, b]) for a, b in corners))
            canvas.add("polygon", f"level{min(int(level * len(COLOURS)), len(COLOURS) - 1)}", points=points)
    canvas.curve([place(i, i, height[i, i]) for i in range(count)], "diagonal dash")
    last = count - 1
    for corner, other in (((0, last), (last, last)), ((last, 0), (last, last))):
        canvas.line(*place(*corner, 0.0), *place(*other, 0.0), "zero")
    for name, (i, j) in {"x₁": (last // 2, last), "x₂": (last, last // 2)}.items():
        x, y = place(i, j, 0.0)
        canvas.text(x + (26 if name == "x₁" else -40), y + 22, name)
