"""A few images with their objects and predictions, for pictures in reports.

Shape legend: S examples, O objects, h w pixels of an image, L side of a stored picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from vitlab.data.detection import Annotated
from vitlab.data.detection_transform import resize_pixels, resized_size

SIDE = 192  # L; pictures have this size, so that parts of the images can be joined
OBJECTS = 24  # O, largest number of objects of a picture
SCORE = 0.5  # smallest score of a prediction that is shown

_WHITE = 255


class Examples:
    """Collects pictures of the first images.

    Args:
        count: S, the largest number of pictures.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._found: list[dict[str, NDArray[Any]]] = []

    def add(self, image: Annotated, prediction: Mapping[str, Tensor]) -> None:
        """Add an image with its objects, and a prediction in its pixels, unless there are enough."""
        if len(self._found) >= self.count:
            return
        height, width = resized_size(image.size, SIDE, SIDE)
        picture = torch.full((3, SIDE, SIDE), _WHITE, dtype=torch.uint8)
        picture[:, :height, :width] = resize_pixels(image.pixels, (height, width))
        row = {"image": picture.permute(1, 2, 0).numpy(), "size": np.array([height, width])}
        truth = {
            "boxes": image.boxes,
            "labels": image.labels,
            "masks": image.masks,
            "scores": torch.ones(len(image.labels)),
        }
        shown = prediction["scores"] >= SCORE
        seen = {name: prediction[name][shown].cpu() for name in truth}
        for name, objects in (("true", truth), ("predicted", seen)):
            row |= {f"{name}_{key}": value for key, value in _objects(objects, image.size, (height, width)).items()}
        self._found.append(row)

    def values(self) -> dict[str, NDArray[Any]]:
        """Arrays by name: `example_image` (S, L, L, 3), `example_size` (S, 2), and for `true` and `predicted` objects
        `example_…_boxes` (S, O, 4) NaN for none, `…_labels` (S, O) 0 for none, `…_scores` (S, O), `…_masks` (S, L, L),
        1 + the object that a pixel belongs to.
        """
        names = self._found[0] if self._found else {}
        return {f"example_{name}": np.stack([row[name] for row in self._found]) for name in names}

    def dims(self) -> dict[str, tuple[str, ...]]:
        """The axes of the values."""
        pixels = ("example", "row", "column")
        ends: dict[str, tuple[str, ...]] = {"boxes": ("example", "object", "corner"), "masks": pixels}
        ends |= {"image": (*pixels, "channel"), "size": ("example", "side")}
        return {name: ends.get(name.rpartition("_")[2], ("example", "object")) for name in self.values()}


def _objects(objects: Mapping[str, Tensor], size: tuple[int, int], new: tuple[int, int]) -> dict[str, NDArray[Any]]:
    """Returns the first objects, padded, in a picture of another size."""
    count = min(OBJECTS, len(objects["labels"]))
    boxes = np.full((OBJECTS, 4), np.nan, dtype=np.float32)
    labels, scores = np.zeros(OBJECTS, dtype=np.int64), np.full(OBJECTS, np.nan, dtype=np.float32)
    masks = torch.zeros(SIDE, SIDE, dtype=torch.uint8)
    scale = torch.tensor([new[1] / size[1], new[0] / size[0]]).repeat(2)
    boxes[:count], labels[:count] = (objects["boxes"][:count] * scale).numpy(), objects["labels"][:count].numpy()
    scores[:count] = objects["scores"][:count].numpy()
    for k in reversed(range(count)):  # the first, of the highest score, is on top
        inside = F.interpolate(objects["masks"][k][None, None].float(), new, mode="nearest")[0, 0] > 0
        masks[: new[0], : new[1]][inside] = k + 1
    return {"boxes": boxes, "labels": labels, "scores": scores, "masks": masks.numpy()}
