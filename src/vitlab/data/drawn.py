"""Labelled images that a generator draws on access.

Shape legend: N images, B of them, h w pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from vitlab.core.machine_memory import check_memory
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
        what = f"a set of {len(self):,} images of {height}x{width}"
        check_memory(what, 3 * len(self) * height * width, advice="use fewer or smaller images")
        pixels = torch.empty(len(self), 3, height, width, dtype=torch.uint8, device="cpu")
        step = max(1, _BLOCK // (height * width))
        for start in range(0, len(self), step):
            preparing(f"drawing images, {start} of {len(self)}")
            pixels[start : start + step] = self.draw(self.indices[start : start + step])
        return pixels
