"""A few images with their label maps and predictions, for pictures in reports.

Shape legend: S examples, h w pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor
from torch.nn import functional as F

NAMES = ("example_image", "example_truth", "example_prediction")

_EVERY = 4  # every fourth image is shown: neighbouring frames of a video look alike
_LONGEST = 160  # pixels of the longer side of a stored picture


class Examples:
    """Collects pictures of the images 0, 4, 8, …, all of the size of the first.

    Args:
        count: S, the largest number of pictures.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._size: tuple[int, int] | None = None
        self._found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def selects(self, index: int) -> bool:
        """Whether the image of this index is shown."""
        return index % _EVERY == 0 and len(self._found) < self.count

    def add(self, pixels: Tensor, truth: Tensor, prediction: Tensor) -> None:
        """Add an image, pixels (3, h, w) in [0, 1], with its label maps."""
        self._size = self._size or _small_size(pixels.shape[-2], pixels.shape[-1])
        image = F.interpolate(pixels[None].float(), self._size, mode="bilinear", antialias=True)[0].permute(1, 2, 0)
        picture = (255 * image.clamp(0, 1)).round().byte().cpu().numpy()
        self._found.append((picture, _small(truth, self._size), _small(prediction, self._size)))

    def values(self) -> dict[str, np.ndarray]:
        """`example_image` (S, h, w, 3), `example_truth`, `example_prediction` (S, h, w), uint8; {} without examples."""
        return {name: np.stack(each) for name, each in zip(NAMES, zip(*self._found, strict=True), strict=False)}


def joined(tables: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The examples of several sets that have the size of the first."""
    shown = [table for table in tables if NAMES[0] in table]
    same = [table for table in shown if table[NAMES[0]].shape[1:] == shown[0][NAMES[0]].shape[1:]]
    return {name: np.concatenate([table[name] for table in same]) for name in NAMES} if same else {}


def _small_size(height: int, width: int) -> tuple[int, int]:
    factor = min(1.0, _LONGEST / max(height, width))
    return max(1, round(height * factor)), max(1, round(width * factor))


def _small(labels: Tensor, size: tuple[int, int]) -> np.ndarray:
    """The labels at the nearest pixels; labels above 255 are stored as 255."""
    resized = F.interpolate(labels[None, None].float(), size, mode="nearest-exact")[0, 0]
    return resized.clamp(0, 255).byte().cpu().numpy()
