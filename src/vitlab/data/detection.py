"""Data for object detection: images with the boxes, classes and masks of their objects.

Shape legend: K objects of an image, h w pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.data.images import Channels

__all__ = ["Annotated", "DetectionData", "DetectionSet"]


@dataclass(frozen=True)
class Annotated:
    """An image and its objects.

    Args:
        pixels: (3, h, w) uint8 RGB.
        boxes: (K, 4) float32 x0 y0 x1 y1 in pixels, end exclusive.
        labels: (K,) int64, 1 + index into the classes; 0 is the background.
        masks: (K, h, w) uint8, 1 inside the object.
        areas: (K,) float32 number of pixels of the object, by which the metric groups objects.
        crowd: (K,) bool: a region of several objects, which training omits and the metric ignores.
    """

    pixels: Tensor
    boxes: Tensor
    labels: Tensor
    masks: Tensor
    areas: Tensor
    crowd: Tensor

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.pixels.shape[1], self.pixels.shape[2]


class DetectionSet(Protocol):
    """A set of images with objects. Items are read or drawn on access."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, i: int) -> Annotated | None:
        """Returns image i with its objects; None if it cannot be read."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash of the images' names and of all annotations."""
        ...

    def subset(self, indices: list[int]) -> DetectionSet:
        """Returns the images at these indices, in this order."""
        ...


@dataclass(frozen=True, eq=False)
class DetectionData:
    """A data set: training and test images with objects of the same classes.

    Args:
        name: the expression that opened it.
        train: None if there are no training images.
        test: the images for evaluation.
        classes: their names.
        mean, std: of the pixels in [0, 1], per channel.
    """

    name: str
    train: DetectionSet | None
    test: DetectionSet
    classes: tuple[str, ...]
    mean: Channels
    std: Channels

    def to_train_on(self) -> DetectionSet:
        """Returns the training images; raises if there are none."""
        if self.train is None:
            raise VitlabError(f"the data set {self.name!r} is for evaluation only; it has no training images")
        return self.train


def no_objects(pixels: Tensor) -> Annotated:
    """Returns an image without objects.

    >>> no_objects(torch.zeros(3, 4, 5, dtype=torch.uint8)).masks.shape
    torch.Size([0, 4, 5])
    """
    empty = torch.zeros(0)
    masks = torch.zeros(0, *pixels.shape[1:], dtype=torch.uint8)
    return Annotated(pixels, empty.view(0, 4), empty.long(), masks, empty, empty.bool())


def as_pixels(image: object) -> Tensor:
    """Returns a PIL image as (3, h, w) uint8."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
