"""Sets of labelled images: in memory, in files or generated (`drawn.py`).

All have `len`, `labels`, `classes`, `mean`, `std`, `fingerprint` and `subset(indices)`; item i is a PIL image with its
label, so that each can be used with a torch DataLoader.

Shape legend: N images, h w pixels.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from vitlab.core.errors import VitlabError
from vitlab.data.decoding import open_rgb
from vitlab.data.drawn import DrawnImages
from vitlab.data.file_fingerprints import files_stamp
from vitlab.data.labelled import UNLABELLED as UNLABELLED
from vitlab.data.labelled import as_rows, check_labels, digest

Channels: TypeAlias = tuple[float, float, float]

#: The label of an image that could not be read. The default `ignore_index` of torch's cross entropy.
IGNORED = -100

_MOST_BROKEN = 100  # consecutive unreadable images before an error: then the disk is probably gone


@dataclass(frozen=True, eq=False, repr=False)
class ImageArray(Dataset[tuple[Image.Image, int]]):
    """A set of images in memory.

    Args:
        images: (N, 3, h, w) uint8 RGB.
        labels: (N,) int64, index into `classes`.
        classes: class names.
        mean, std: of the pixels in [0, 1], per channel, for normalisation.

    >>> two = ImageArray(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 1]), ("cat", "dog"))
    >>> len(two), two.subset([1]).labels, two[1][0].size
    (2, tensor([1]), (4, 4))
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    mean: Channels = (0.5, 0.5, 0.5)
    std: Channels = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        """Validate images and labels."""
        shape = tuple(self.images.shape)
        if self.images.dtype != torch.uint8 or len(shape) != 4 or shape[1] != 3:
            raise VitlabError(f"images are {self.images.dtype} of shape {shape}; expected uint8 of shape (N, 3, h, w)")
        check_labels(self.labels, self.classes, shape[0])

    def __len__(self) -> int:
        """Returns the number of images, N."""
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Image.Image, int]:
        """Returns image i and its label."""
        return Image.fromarray(self.images[i].permute(1, 2, 0).numpy()), int(self.labels[i])

    def __repr__(self) -> str:
        """Returns the number of images and classes."""
        return f"ImageArray({len(self)} images, {len(self.classes)} classes)"

    def subset(self, indices: Sequence[int] | Tensor) -> ImageArray:
        """Returns the images at these indices, in this order."""
        rows = as_rows(indices)
        return replace(self, images=self.images[rows], labels=self.labels[rows])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the pixels, the labels and the class names."""
        return digest(self.images, self.labels, "\n".join(self.classes).encode())


@dataclass(frozen=True, eq=False, repr=False)
class ImageFiles(Dataset[tuple[Image.Image, int]]):
    """A set of image files, decoded on access.

    A file that is damaged or missing causes one warning and is marked in `broken`. In training (`replace`) the next
    readable image is returned instead; which one depends on the files only, so that a run is reproducible for any
    number of workers. In evaluation (`mark`) a black image with the label `IGNORED` is returned; remove it with
    `drop_broken` for exact counts. `broken` is in shared memory, so that the main process sees what workers mark.

    Args:
        root: the folder of the files.
        names: (N,) paths relative to `root` as bytes, in one block of memory that forked workers share.
        labels: (N,) int64, index into `classes`.
        classes: class names.
        mean, std: of the pixels in [0, 1], per channel, for normalisation.
        on_broken: what an unreadable image returns: `replace`, the next readable one; `mark`, a black one to ignore.
    """

    root: Path
    names: NDArray[np.bytes_]
    labels: Tensor
    classes: tuple[str, ...]
    mean: Channels = (0.5, 0.5, 0.5)
    std: Channels = (0.5, 0.5, 0.5)
    on_broken: Literal["replace", "mark"] = "replace"
    broken: Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Validate the labels and allocate `broken`."""
        check_labels(self.labels, self.classes, len(self.names))
        object.__setattr__(self, "broken", torch.zeros(len(self.names), dtype=torch.bool).share_memory_())

    def __len__(self) -> int:
        """Returns the number of images, N, including unreadable ones."""
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Image.Image, int]:
        """Returns image i and its label, or its replacement."""
        first = range(len(self))[i]
        for step in range(min(len(self), _MOST_BROKEN)):
            j = (first + step) % len(self)
            image = self._decode(j)
            if image is not None:
                return image, int(self.labels[j])
            if self.on_broken == "mark":
                return Image.new("RGB", (32, 32)), IGNORED
        raise VitlabError(f"{step + 1} images in a row from {self.path(first)} on cannot be read; check the disk")

    def path(self, i: int) -> Path:
        """Returns the path of image i."""
        return self.root / os.fsdecode(bytes(self.names[i]))

    @property
    def broken_paths(self) -> list[Path]:
        """The files that could not be read so far, in any process."""
        return [self.path(i) for i in self.broken.nonzero()[:, 0].tolist()]

    def __repr__(self) -> str:
        """Returns the number of images and classes."""
        return f"ImageFiles({len(self)} images, {len(self.classes)} classes)"

    def files(self, i: int) -> tuple[Path]:
        """The files of item i."""
        return (self.path(i),)

    def subset(self, indices: Sequence[int] | Tensor) -> ImageFiles:
        """Returns the images at these indices, in this order; `broken` is reset."""
        rows = as_rows(indices)
        return replace(self, names=self.names[rows.numpy()], labels=self.labels[rows])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the file names, the labels and the class names; files are not opened."""
        return digest(b"\n".join(self.names.tolist()), self.labels, "\n".join(self.classes).encode())

    @property
    def stamp(self) -> str:
        """A hash of the sizes and times of the files, which changes when a file is replaced; reads no contents."""
        return files_stamp(path for i in range(len(self)) for path in self.files(i))

    def _decode(self, i: int) -> Image.Image | None:
        try:
            return open_rgb(self.path(i))
        except Exception as error:  # PIL raises many types of exceptions on damaged files
            if not self.broken[i]:
                self.broken[i] = True
                warnings.warn(
                    f"cannot read the image {self.path(i)} ({error.__cause__ or error}); it is skipped", stacklevel=3
                )
            return None


ImageSet: TypeAlias = ImageArray | ImageFiles | DrawnImages


def in_memory(images: ImageSet) -> ImageArray | ImageFiles:
    """Returns generated images as an array, drawn at the first call and cached; other sets unchanged."""
    if not isinstance(images, DrawnImages):
        return images
    return ImageArray(images.pixels, images.labels, images.classes, images.mean, images.std)


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set: training and test images of the same classes.

    Args:
        name: the expression that opened it, or any name.
        train: None if the set is for evaluation only (one split of ImageNet, CIFAR-10-C).
        test: the images for evaluation.
        classes, mean, std: as in both sets.
    """

    name: str
    train: ImageSet | None
    test: ImageSet
    classes: tuple[str, ...] = field(repr=False)
    mean: Channels
    std: Channels

    def to_train_on(self) -> ImageSet:
        """Returns the training images; raises if there are none."""
        if self.train is None:
            raise VitlabError(
                f"the data set {self.name!r} is for evaluation only; it has no training images; a folder needs "
                "subfolders train and val, or the setting holdout=0.2"
            )
        return self.train


def from_splits(name: str, train: ImageSet | None, test: ImageSet) -> DataSet:
    """Returns a data set of two splits; classes, mean and std are those of `test`."""
    return DataSet(name, train, test, test.classes, test.mean, test.std)


def drop_broken(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Remove the images that could not be read from a batch: (B, …) and (B,) become (b, …) and (b,).

    >>> drop_broken(torch.tensor([[1.0], [0.0]]), torch.tensor([7, IGNORED]))
    (tensor([[1.]]), tensor([7]))
    """
    good = targets != IGNORED
    return (images, targets) if bool(good.all()) else (images[good], targets[good])
