"""Thumbnails of the images with the highest loss, collected batch by batch.

Shape legend: B batch, C channels, h w pixels, E examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from vitlab.data.thumbnails import input_thumbnails

#: The number of images that are kept, and the maximum side of their thumbnails in pixels.
KEPT, SIDE = 32, 48

#: Names and axes of the values; `pooling` leaves them out of numbers.
DIMS: dict[str, tuple[str, ...]] = {
    "example": ("example", "row", "column", "channel"),
    "example_index": ("example",),
    "example_label": ("example",),
}
POOLING = dict.fromkeys(DIMS, ("examples",))


class HardestImages:
    """Collects the images with the highest loss.

    Args:
        batches: the source of the images, for their normalisation.
        classes: names of the classes.
        kept: the number of images.
    """

    def __init__(self, batches: Any, classes: Sequence[str], kept: int = KEPT) -> None:
        self._batches, self._classes, self._kept = batches, classes, kept
        self._rows: list[tuple[float, int, str, np.ndarray]] = []
        self._seen = 0

    def add(self, images: Tensor, losses: np.ndarray, targets: Any) -> None:
        """Add a batch: images (B, C, h, w), losses (B,), and targets as class indices or probabilities (B, classes)."""
        least = self._rows[-1][0] if len(self._rows) == self._kept else -np.inf
        hardest = [int(place) for place in np.argsort(-losses, kind="stable")[: self._kept] if losses[place] > least]
        if hardest:
            pictures = input_thumbnails(images[hardest], self._batches, SIDE)
            for place, picture in zip(hardest, pictures, strict=True):
                self._rows.append((float(losses[place]), self._seen + place, self._name(targets, place), picture))
            self._rows = sorted(self._rows, key=lambda row: (-row[0], row[1]))[: self._kept]
        self._seen += len(images)

    def values(self) -> dict[str, np.ndarray]:
        """`example` (E, h, w, 3) uint8, `example_index` (E), the position in the data, and `example_label` (E)."""
        _, index, label, picture = zip(*self._rows, strict=True)
        return {"example": np.stack(picture), "example_index": np.array(index), "example_label": np.array(label)}

    def _name(self, targets: Any, place: int) -> str:
        if not isinstance(targets, Tensor):
            return ""
        label = int(targets[place].argmax() if targets.ndim == 2 else targets[place])
        return self._classes[label] if 0 <= label < len(self._classes) else f"class {label}"
