"""Thumbnails of the first images, collected batch by batch.

Which images two models differ on is known only when both were measured, so that a choice by one model, such as its
highest losses, would miss most of them. The first images are the same for all models on the same data.

Shape legend: B batch, C channels, h w pixels, E examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from vitlab.data.thumbnails import input_thumbnails

#: The maximum number of images, and the maximum side of their thumbnails in pixels: at most 3.5 MB before compression.
KEPT, SIDE = 512, 48

#: Names and axes of the values; `pooling` leaves them out of numbers.
DIMS: dict[str, tuple[str, ...]] = {
    "example": ("example", "row", "column", "channel"),
    "example_index": ("example",),
    "example_label": ("example",),
}
POOLING = dict.fromkeys(DIMS, ("examples",))


class ExampleImages:
    """Collects the first images.

    Args:
        batches: the source of the images, for their normalisation.
        classes: names of the classes.
        kept: the maximum number of images.
    """

    def __init__(self, batches: Any, classes: Sequence[str], kept: int = KEPT) -> None:
        self._batches, self._classes, self._kept = batches, classes, kept
        self._pictures: list[np.ndarray] = []
        self._labels: list[str] = []

    def add(self, images: Tensor, targets: Any) -> None:
        """Add a batch: images (B, C, h, w), and targets as class indices or probabilities (B, classes)."""
        count = min(len(images), self._kept - len(self._labels))
        if count > 0:
            self._pictures.append(input_thumbnails(images[:count], self._batches, SIDE))
            self._labels += [self._name(targets, place) for place in range(count)]

    def values(self) -> dict[str, np.ndarray]:
        """`example` (E, h, w, 3) uint8, `example_index` (E), the position in the data, and `example_label` (E)."""
        index, label = np.arange(len(self._labels)), np.array(self._labels)
        return {"example": np.concatenate(self._pictures), "example_index": index, "example_label": label}

    def _name(self, targets: Any, place: int) -> str:
        if not isinstance(targets, Tensor):
            return ""
        label = int(targets[place].argmax() if targets.ndim == 2 else targets[place])
        return self._classes[label] if 0 <= label < len(self._classes) else f"class {label}"
