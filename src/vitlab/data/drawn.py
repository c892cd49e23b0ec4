"""Labelled images that a generator draws on access.

Shape legend: N images, B of them, h w pixels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from vitlab.core.errors import VitlabError
from vitlab.core.step_cache import preparing
from vitlab.data.labelled import as_rows, check_labels, digest

_BLOCK = 1 << 24  # pixels between two reports of progress: about a second of one core


@dataclass(frozen=True, eq=False, repr=False)
class DrawnImages(Dataset[tuple[Image.Image, int]]):
    """A set of generated images. Labels are given; `subset` and `fingerprint` draw nothing.

    Args:
        draw: maps indices (B,) int64 to images (B, 3, h, w) uint8; a function of the index alone.
        generator: name, version and settings of `draw`: everything else that the pixels depend on.
        size: h, w.
        indices: (N,) int64, the indices to draw.
        labels: (N,) int64, index into `classes`.
        classes: class names.
        mean, std: of the pixels in [0, 1], per channel, for normalisation.

    >>> grey = lambda indices: indices.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 4, 4)
    >>> two = DrawnImages(grey, "grey 1", (4, 4), torch.tensor([30, 60]), torch.tensor([0, 1]), ("dark", "light"))
    >>> two.subset([1])[0][0].getpixel((0, 0)), two.pixels.shape
    ((60, 60, 60), torch.Size([2, 3, 4, 4]))
    """

    draw: Callable[[Tensor], Tensor]
    generator: str
    size: tuple[int, int]
    indices: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        """Validate the labels."""
        check_labels(self.labels, self.classes, len(self.indices))

    def __len__(self) -> int:
        """Returns the number of images, N."""
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Image.Image, int]:
        """Draw image i; returns it with its label."""
        row = range(len(self))[i]
        (pixels,) = self.draw(self.indices[row : row + 1])
        return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()), int(self.labels[row])

    def __repr__(self) -> str:
        """Returns the number of images and classes."""
        return f"DrawnImages({len(self)} images, {len(self.classes)} classes)"

    def subset(self, indices: Sequence[int] | Tensor) -> DrawnImages:
        """Returns the images at these indices, in this order."""
        rows = as_rows(indices)
        return replace(self, indices=self.indices[rows], labels=self.labels[rows])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the generator, the indices, the labels and the class names."""
        return digest(self.generator.encode(), self.indices, self.labels, "\n".join(self.classes).encode())

    @cached_property
    def pixels(self) -> Tensor:
        """(N, 3, h, w) uint8: all images, drawn at first access, then cached. Reports progress to the step cache."""
        height, width = self.size
        _check_memory(len(self), self.size)
        pixels = torch.empty(len(self), 3, height, width, dtype=torch.uint8, device="cpu")
        step = max(1, _BLOCK // (height * width))
        for start in range(0, len(self), step):
            preparing(f"drawing images, {start} of {len(self)}")
            pixels[start : start + step] = self.draw(self.indices[start : start + step])
        return pixels


def _check_memory(count: int, size: tuple[int, int]) -> None:
    """Raise if the images need more memory than the machine has."""
    needed, available = 3 * count * size[0] * size[1], _physical_memory()
    if available is not None and needed > available:
        raise VitlabError(
            f"{count:,} images of {size[0]}x{size[1]} need {needed / 1e9:,.0f} GB of memory; this machine has"
            f" {available / 1e9:,.0f} GB; use fewer or smaller images"
        )


def _physical_memory() -> int | None:
    """Returns the bytes of main memory; None if the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
