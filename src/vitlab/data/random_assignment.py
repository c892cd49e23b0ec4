"""Random assignment of the images of a chunk to operations, with fixed shapes.

Independent random choices would make the number of images per operation random: the host would have to wait for that
number, or every operation would have to run on every image. Instead every operation has ⌈n p / k⌉ slots, which a random
permutation fills with images. Each image still gets each operation with probability p / k exactly; but the choices for
the images of a chunk are not independent (the shares are stratified, which lowers the variance).

Shape legend: n images, k operations, S slots (k runs of equal length, one for each operation).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Assignment", "assign_slots", "put", "take"]


class Assignment(NamedTuple):
    """The image in each slot.

    Args:
        rows: (S,) int64, the row of the image in each slot, no row twice; rows of n and above mean an empty slot.
        active: (S,) bool: whether the operation is applied. Corrects for n p / k not being an integer.
    """

    rows: Tensor
    active: Tensor


def assign_slots(count: int, probability: float, generator: torch.Generator, kinds: int = 1) -> Assignment:
    """Assign `count` images to the slots of `kinds` operations; each image gets one of them with `probability`.

    P(image i gets operation j) = (S/k) / T · p T / S = p / k with T = max(n, S) permuted rows: exact for every n.

    Args:
        count: n.
        probability: p, that an image gets any operation.
        generator: its device is the device of the result.
        kinds: k.

    >>> assignment = assign_slots(30, 0.5, torch.Generator().manual_seed(0), kinds=3)
    >>> len(assignment.rows), len(set(assignment.rows.tolist())), bool(assignment.active.all())
    (15, 15, True)
    """
    slots = kinds * math.ceil(count * probability / kinds)
    places = max(count, slots)
    device = generator.device
    rows = torch.randperm(places, generator=generator, device=device)[:slots]
    gate = probability * places / slots if slots else 1.0
    return Assignment(rows, torch.rand(slots, generator=generator, device=device) < gate)


def take(images: Tensor, rows: Tensor) -> Tensor:
    """Returns the images in the slots, (n, …) -> (S, …); empty slots contain any image.

    >>> take(torch.tensor([10, 20]), torch.tensor([1, 2, 0]))
    tensor([20, 20, 10])
    """
    return images[rows.clamp(max=len(images) - 1)]


def put(images: Tensor, rows: Tensor, changed: Tensor) -> Tensor:
    """Returns the images (n, …) with those in the slots replaced by (S, …); empty slots are ignored.

    >>> put(torch.tensor([10, 20]), torch.tensor([1, 2, 0]), torch.tensor([7, 8, 9]))
    tensor([9, 7])
    """
    spare = len(rows) - len(images)
    if spare > 0:  # fewer images than slots: extra rows for the empty slots
        images = torch.cat((images, images.new_zeros(spare, *images.shape[1:])))
    return images.index_copy(0, rows, changed)[: len(images) - max(spare, 0)]
