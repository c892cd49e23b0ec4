"""Pictures of images with boxes, masks and names of objects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.label_maps import class_colour

_SCALE = 2  # pixels of a picture per stored pixel
_OPACITY = 0.45  # of a mask
_TEXT = 17  # height of the text, in pixels


def with_objects(measurement: Measurement, place: int, kind: str, classes: Sequence[str]) -> np.ndarray:
    """Returns a picture (h, w, 3) uint8 of an example of `average_precision`.

    Args:
        measurement: with the values `example_…`.
        place: the number of the example.
        kind: the objects to draw, `true` or `predicted`.
        classes: names of the classes; object labels count from 1.
    """
    from PIL import Image, ImageDraw, ImageFont

    def value(name: str) -> np.ndarray:
        array: np.ndarray = np.asarray(measurement.values[f"example_{name}"])[place]
        return array

    boxes, labels, scores, masks = (value(f"{kind}_{name}") for name in ("boxes", "labels", "scores", "masks"))
    picture = value("image").astype(float)
    for k in range(len(labels)):
        if labels[k]:
            colour = np.array(class_colour(int(labels[k]) - 1), dtype=float)
            inside = masks == k + 1
            picture[inside] = (1 - _OPACITY) * picture[inside] + _OPACITY * colour
    large = picture.round().astype(np.uint8).repeat(_SCALE, 0).repeat(_SCALE, 1)
    canvas = Image.fromarray(large)
    pen = ImageDraw.Draw(canvas)
    pen.font = ImageFont.load_default(size=_TEXT)
    for box, label, score in zip(boxes, labels, scores, strict=True):
        if label:
            name = classes[int(label) - 1]
            _box(pen, box * _SCALE, class_colour(int(label) - 1), name if kind == "true" else f"{name} {score:.2f}")
    return np.asarray(canvas)


def _box(pen: object, box: np.ndarray, colour: tuple[int, int, int], text: str) -> None:
    """Draw a box, with its text inside at the top left."""
    x0, y0, x1, y1 = (float(each) for each in box)
    pen.rectangle((x0, y0, max(x0, x1 - 1), max(y0, y1 - 1)), outline=colour, width=3)  # type: ignore[attr-defined]
    around = pen.textbbox((x0 + 3, y0 + 2), text)  # type: ignore[attr-defined]
    pen.rectangle((around[0] - 2, around[1] - 1, around[2] + 2, around[3] + 1), fill=colour)  # type: ignore[attr-defined]
    dark = sum(colour) > 380
    pen.text((x0 + 3, y0 + 2), text, fill=(0, 0, 0) if dark else (255, 255, 255))  # type: ignore[attr-defined]
