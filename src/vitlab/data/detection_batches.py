"""Batches for detection: images of different sizes padded to one size and normalised, with their objects.

The images of a batch are padded at the right and at the bottom with zeros, after normalisation, to a multiple of
`STRIDE`. Objects are padded to the largest number in the batch.

Shape legend: B batch, K objects of an image (largest number in the batch), H W pixels of the padded images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.data.augment import normalise
from vitlab.data.detection_transform import Prepared
from vitlab.data.device_copy import per_channel
from vitlab.data.images import Channels

__all__ = ["STRIDE", "DetectionBatch", "normalised", "padded", "stacked", "targets_of"]

STRIDE = 32  # of the coarsest features


class DetectionBatch(NamedTuple):
    """Training images and their objects.

    Args:
        images: (B, 3, H, W) float32, normalised, zero outside of the images.
        sizes: (B, 2) int64 height and width of each image without padding.
        boxes: (B, K, 4) float32 x0 y0 x1 y1.
        labels: (B, K) int64, 1 + class; 0 where an image has fewer than K objects.
        masks: (B, K, H, W) uint8.
    """

    images: Tensor
    sizes: Tensor
    boxes: Tensor
    labels: Tensor
    masks: Tensor


def targets_of(batch: Sequence[Tensor]) -> list[dict[str, Tensor]]:
    """Returns the objects of each image of a `DetectionBatch` in torchvision's format, without padding."""
    _, _, boxes, labels, masks = batch
    present = labels > 0
    return [
        {"boxes": boxes[i][present[i]], "labels": labels[i][present[i]], "masks": masks[i][present[i]]}
        for i in range(len(labels))
    ]


def stacked(pixels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Returns padded images (B, 3, H, W) uint8 and their sizes (B, 2)."""
    sizes = torch.tensor([image.shape[1:] for image in pixels])
    height, width = (-(-int(each) // STRIDE) * STRIDE for each in sizes.amax(0))
    return torch.stack(
        [F.pad(image, (0, width - image.shape[2], 0, height - image.shape[1])) for image in pixels]
    ), sizes


def padded(rows: list[Prepared]) -> DetectionBatch:
    """Returns a batch of uint8 pixels with the objects of all images padded to one number."""
    pixels, sizes = stacked([row.pixels for row in rows])
    most = max(len(row.labels) for row in rows)
    boxes = torch.zeros(len(rows), most, 4)
    labels = torch.zeros(len(rows), most, dtype=torch.int64)
    masks = torch.zeros(len(rows), most, *pixels.shape[2:], dtype=torch.uint8)
    for i, row in enumerate(rows):
        count, (height, width) = len(row.labels), sizes[i].tolist()
        boxes[i, :count], labels[i, :count], masks[i, :count, :height, :width] = row.boxes, row.labels, row.masks
    return DetectionBatch(pixels, sizes, boxes, labels, masks)


def normalised(pixels: Tensor, sizes: Tensor, mean: Channels, std: Channels, device: torch.device) -> Tensor:
    """Returns normalised images (B, 3, H, W), zero outside of their sizes."""
    moved = pixels.to(device, non_blocking=device.type == "cuda")
    images = normalise(moved, per_channel(mean, device), per_channel(std, device))
    for i, (height, width) in enumerate(sizes.tolist()):
        images[i, :, height:] = 0
        images[i, :, :, width:] = 0
    return images
