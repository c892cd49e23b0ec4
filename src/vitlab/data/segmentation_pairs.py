"""Images with label maps: files, arrays and generated scenes, all read as (pixels, labels) of one image.

Shape legend: h w pixels, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.data.decoding import open_labels, open_rgb
from vitlab.data.file_fingerprints import files_stamp
from vitlab.data.images import Channels
from vitlab.data.scene_layout import Cues
from vitlab.data.scenes import VERSION, draw_scenes

__all__ = ["IGNORE", "PairData", "PairFiles", "Pairs", "ScenePairs"]

#: The label of pixels that are not counted, in all label maps that are read.
IGNORE = 255

_INVALID = -1

Decoded = TypeVar("Decoded")


class Pairs(Protocol):
    """A set of images with label maps."""

    def __len__(self) -> int:
        """Returns the number of images."""
        ...

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Returns pixels (3, h, w) uint8 and labels (h, w) uint8: classes, or `IGNORE`."""
        ...

    @property
    def fingerprint(self) -> str:
        """Identifies the images and labels, for provenance."""
        ...

    def subset(self, indices: Sequence[int]) -> Pairs:
        """Returns the pairs of these indices."""
        ...


@dataclass(frozen=True)
class PairData:
    """A data set for segmentation.

    Args:
        name: the data expression.
        train, test: the two splits; there may be no training images.
        classes: names of the classes.
        mean, std: of the pixels in [0, 1], per channel.
    """

    name: str
    train: Pairs | None
    test: Pairs
    classes: tuple[str, ...]
    mean: Channels
    std: Channels


@dataclass(frozen=True)
class PairFiles:
    """Image files with label files, read on access.

    Args:
        paths: each image and its label map.
        classes: K.
        table: (value in a label file, class) pairs; values that are not listed are invalid. Default: 0 to K − 1 are the
            classes and 255 is ignored.
    """

    paths: tuple[tuple[Path, Path], ...]
    classes: int
    table: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        """Returns the number of images."""
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Reads and checks one pair."""
        image_path, label_path = self.paths[index]
        image, values = _read(open_rgb, image_path), _read(open_labels, label_path)
        if values.ndim != 2 or values.shape != (image.height, image.width):
            raise VitlabError(
                f"{label_path} has labels of shape {values.shape}, but {image_path} has (h, w) = "
                f"{(image.height, image.width)}; expected one label per pixel"
            )
        whole = np.where(np.rint(values) == values, values, _INVALID) if values.dtype.kind == "f" else values
        labels = self._lookup[np.clip(whole, -1, 256).astype(np.int64) + 1]
        if (labels == _INVALID).any():
            wrong = values[labels == _INVALID][0].item()
            raise VitlabError(
                f"{label_path} has the label {wrong}, which is none of the {self.classes} classes nor ignored; "
                "correct the labels, or classes= and ignore= of the data"
            )
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return pixels, torch.from_numpy(labels.astype(np.uint8))

    @property
    def fingerprint(self) -> str:
        """The number of files and a digest of their names and sizes."""
        about = [f"{path.name} {path.stat().st_size}\n" for pair in self.paths for path in pair]
        return f"{len(self)} pairs of files {blake2b(''.join(about).encode(), digest_size=8).hexdigest()}"

    def files(self, index: int) -> tuple[Path, Path]:
        """The image and its label map."""
        return self.paths[index]

    @property
    def stamp(self) -> str:
        """A digest of the sizes and times of the files, which changes when one is replaced."""
        return files_stamp(path for i in range(len(self)) for path in self.files(i))

    def subset(self, indices: Sequence[int]) -> PairFiles:
        """Returns the pairs of these indices."""
        return replace(self, paths=tuple(self.paths[index] for index in indices))

    @property
    def _lookup(self) -> np.ndarray:
        """Class of each value from −1 to 256; the two ends are invalid."""
        table = self.table or (*((value, value) for value in range(self.classes)), (IGNORE, IGNORE))
        lookup = np.full(258, _INVALID)
        for value, label in table:
            lookup[value + 1] = label
        return lookup


@dataclass(frozen=True)
class ScenePairs:
    """Generated scenes with their masks. Class 0 is the background.

    Args:
        indices: of the scenes.
        size: (h, w).
        seed, objects, cues: see `draw_scenes`.
        labels: the classes: `class` for the 25 textured shapes, `shape` or `texture` for five each.
    """

    indices: range | tuple[int, ...]
    size: tuple[int, int]
    seed: int = 0
    objects: int = 4
    cues: Cues = "free"
    labels: str = "class"

    def __len__(self) -> int:
        """Returns the number of scenes."""
        return len(self.indices)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Draws one scene and its mask."""
        scene = draw_scenes(1, self.size, self.seed, self.indices[index], self.objects, cues=self.cues)
        mask = scene.masks[0]
        if self.labels == "shape":
            mask = torch.where(mask > 0, (mask - 1) // 5 + 1, 0)
        elif self.labels == "texture":
            mask = torch.where(mask > 0, (mask - 1) % 5 + 1, 0)
        return scene.images[0], mask.to(torch.uint8)

    @property
    def fingerprint(self) -> str:
        """The settings of the generator and the indices."""
        indices = blake2b(repr(list(self.indices)).encode(), digest_size=8).hexdigest()
        settings = f"size={self.size}, seed={self.seed}, objects={self.objects}, cues={self.cues}, {self.labels}"
        return f"scenes {VERSION} with masks: {settings}, {len(self)} {indices}"

    def subset(self, indices: Sequence[int]) -> ScenePairs:
        """Returns the scenes of these indices."""
        return replace(self, indices=tuple(self.indices[index] for index in indices))


def _read(read: Callable[[Path], Decoded], path: Path) -> Decoded:
    try:
        return read(path)
    except Exception as error:  # PIL raises many types of exceptions on damaged files
        cause = error.__cause__ or error
        reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
        raise VitlabError(f"cannot read {path} ({reason}); replace the file") from error
