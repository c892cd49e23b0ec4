"""Fixed shares in place of coin tosses: which images of a chunk get which operation, in shapes known beforehand.

A coin tossed for each image makes the number of heads random: to work on the heads alone, the host must wait for their
number; to work on all images and choose afterwards costs every operation on every image. So slots are dealt, like
cards: every operation owns ⌈n p / k⌉ slots, and a random permutation fills them with images. Each image still gets each
operation with probability p / k exactly; only the independence between the images of a chunk is given up (the shares
are stratified), and with it a source of variance.

Shape legend: n images, k operations, S slots (k runs of equal length, one for each operation).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Deal", "deal", "put", "take"]


class Deal(NamedTuple):
    """Who stands in which slot.

    Args:
        rows: (S,) int64, an image's row for each slot, no row twice; rows of n and above mean that nobody stands there.
        active: (S,) bool: whether the operation acts. It evens out that n p / k is no integer.
    """

    rows: Tensor
    active: Tensor


def deal(count: int, probability: float, generator: torch.Generator, kinds: int = 1) -> Deal:
    """Deal `count` images into the slots of `kinds` operations, of which each image gets one with `probability`.

    P(image i gets operation j) = (S/k) / T · p T / S = p / k with T = max(n, S) places dealt from: exact for every n.

    Args:
        count: n.
        probability: p, that an image gets any operation at all.
        generator: on the device where the result shall be.
        kinds: k.

    >>> hand = deal(30, 0.5, torch.Generator().manual_seed(0), kinds=3)
    >>> len(hand.rows), len(set(hand.rows.tolist())), bool(hand.active.all())
    (15, 15, True)
    """
    slots = kinds * math.ceil(count * probability / kinds)
    places = max(count, slots)
    device = generator.device
    rows = torch.randperm(places, generator=generator, device=device)[:slots]
    gate = probability * places / slots if slots else 1.0
    return Deal(rows, torch.rand(slots, generator=generator, device=device) < gate)


def take(images: Tensor, rows: Tensor) -> Tensor:
    """The images in the slots, (n, …) -> (S, …); where nobody stands, any image.

    >>> take(torch.tensor([10, 20]), torch.tensor([1, 2, 0]))
    tensor([20, 20, 10])
    """
    return images[rows.clamp(max=len(images) - 1)]


def put(images: Tensor, rows: Tensor, changed: Tensor) -> Tensor:
    """The images (n, …) with those in the slots replaced by (S, …); what nobody asked for falls away.

    >>> put(torch.tensor([10, 20]), torch.tensor([1, 2, 0]), torch.tensor([7, 8, 9]))
    tensor([9, 7])
    """
    spare = len(rows) - len(images)
    if spare > 0:  # only where there are fewer images than slots: scratch rows for the empty ones
        images = torch.cat((images, images.new_zeros(spare, *images.shape[1:])))
    return images.index_copy(0, rows, changed)[: len(images) - max(spare, 0)]
