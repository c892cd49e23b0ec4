"""Labelled images, in memory, in files or drawn (`drawn.py`): the kinds of set that every reader returns.

All have `len`, `labels`, `classes`, `mean`, `std`, `fingerprint`, `subset(indices)`, and `set[i]` is a PIL image with
its label, so that each can be the data set of a torch DataLoader.

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
from vitlab.data.labelled import UNLABELLED as UNLABELLED
from vitlab.data.labelled import as_rows, check_labels, digest

Channels: TypeAlias = tuple[float, float, float]

#: The label of an image that could not be read. It is torch's `ignore_index`: cross entropy leaves it out by itself.
IGNORED = -100

_PATIENCE = 100  # broken images in a row before a set is given up: then it is the disk, not the images


@dataclass(frozen=True, eq=False, repr=False)
class ImageArray(Dataset[tuple[Image.Image, int]]):
    """A whole set in memory.

    Args:
        images: (N, 3, h, w) uint8 RGB.
        labels: (N,) int64, index into `classes`.
        classes: their names.
        mean, std: of the pixels in [0, 1], by channel, for normalisation.

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
        """Refuse what is no set of images."""
        shape = tuple(self.images.shape)
        if self.images.dtype != torch.uint8 or len(shape) != 4 or shape[1] != 3:
            raise VitlabError(f"images are {self.images.dtype} of shape {shape}; give uint8 of shape (N, 3, h, w)")
        check_labels(self.labels, self.classes, shape[0])

    def __len__(self) -> int:
        """How many images, N."""
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Image.Image, int]:
        """Image i and its label."""
        return Image.fromarray(self.images[i].permute(1, 2, 0).numpy()), int(self.labels[i])

    def __repr__(self) -> str:
        """Its sizes; not a million names."""
        return f"ImageArray({len(self)} images, {len(self.classes)} classes)"

    def subset(self, indices: Sequence[int] | Tensor) -> ImageArray:
        """The images of these indices, in this order."""
        rows = as_rows(indices)
        return replace(self, images=self.images[rows], labels=self.labels[rows])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the pixels, the labels and the names of the classes."""
        return digest(self.images, self.labels, "\n".join(self.classes).encode())


@dataclass(frozen=True, eq=False, repr=False)
class ImageFiles(Dataset[tuple[Image.Image, int]]):
    """A set of image files, decoded when they are asked for.

    A file that is broken or gone is named in one warning and marked in `broken`. In training (`replace`) the next good
    image stands in for it: which one depends on the files only, so that a run repeats bit for bit whatever the number
    of workers. In evaluation (`mark`) it comes back black with the label `IGNORED`: take it out with `drop_broken`, and
    the counts are exact. `broken` lies in shared memory: what a worker process finds, the main process sees.

    Args:
        root: the folder that holds them.
        names: (N,) paths below `root` as bytes: one block of memory, which forked workers share.
        labels: (N,) int64, index into `classes`.
        classes: their names.
        mean, std: of the pixels in [0, 1], by channel, for normalisation.
        on_broken: what stands in for a broken image: `replace`, the next good one; `mark`, a black one to ignore.
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
        """Refuse labels that do not fit, and make room for what is found broken."""
        check_labels(self.labels, self.classes, len(self.names))
        object.__setattr__(self, "broken", torch.zeros(len(self.names), dtype=torch.bool).share_memory_())

    def __len__(self) -> int:
        """How many images, N, broken ones included."""
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Image.Image, int]:
        """Image i and its label, or what stands in for it."""
        first = range(len(self))[i]
        for step in range(min(len(self), _PATIENCE)):
            j = (first + step) % len(self)
            image = self._decode(j)
            if image is not None:
                return image, int(self.labels[j])
            if self.on_broken == "mark":
                return Image.new("RGB", (32, 32)), IGNORED
        raise VitlabError(f"{step + 1} images in a row from {self.path(first)} on cannot be read; is the disk there?")

    def path(self, i: int) -> Path:
        """Where image i lies."""
        return self.root / os.fsdecode(bytes(self.names[i]))

    @property
    def broken_paths(self) -> list[Path]:
        """The files that were asked for so far and could not be read, by any process."""
        return [self.path(i) for i in self.broken.nonzero()[:, 0].tolist()]

    def __repr__(self) -> str:
        """Its sizes; not a million names."""
        return f"ImageFiles({len(self)} images, {len(self.classes)} classes)"

    def subset(self, indices: Sequence[int] | Tensor) -> ImageFiles:
        """The images of these indices, in this order, with nothing known yet of which are broken."""
        rows = as_rows(indices)
        return replace(self, names=self.names[rows.numpy()], labels=self.labels[rows])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the names of the files, the labels and the names of the classes; files are not opened for it."""
        return digest(b"\n".join(self.names.tolist()), self.labels, "\n".join(self.classes).encode())

    def _decode(self, i: int) -> Image.Image | None:
        try:
            return open_rgb(self.path(i))
        except Exception as error:  # PIL's readers raise nearly anything on damaged bytes
            if not self.broken[i]:
                self.broken[i] = True
                warnings.warn(f"cannot read the image {self.path(i)} ({error}); it is skipped", stacklevel=3)
            return None


ImageSet: TypeAlias = ImageArray | ImageFiles | DrawnImages


def in_memory(images: ImageSet) -> ImageArray | ImageFiles:
    """Drawn images as an array, which is drawn at the first call and kept; other images unchanged."""
    if not isinstance(images, DrawnImages):
        return images
    return ImageArray(images.pixels, images.labels, images.classes, images.mean, images.std)


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set: images to train on and images to test on, of the same classes.

    Args:
        name: the expression that it was opened with, or any name.
        train: None where the set is for evaluation only (one split of ImageNet, CIFAR-10-C).
        test: the images that accuracies are reported on.
        classes, mean, std: as in both sets.
    """

    name: str
    train: ImageSet | None
    test: ImageSet
    classes: tuple[str, ...] = field(repr=False)
    mean: Channels
    std: Channels

    def to_train_on(self) -> ImageSet:
        """The training images, or an error that says that there are none."""
        if self.train is None:
            raise VitlabError(f"the data set {self.name!r} is for evaluation only: it has no training images")
        return self.train


def join(name: str, train: ImageSet | None, test: ImageSet) -> DataSet:
    """A data set of two splits; classes, mean and std are those of `test`."""
    return DataSet(name, train, test, test.classes, test.mean, test.std)


def drop_broken(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """A batch without the images that could not be read: (B, …) and (B,) become (b, …) and (b,).

    >>> drop_broken(torch.tensor([[1.0], [0.0]]), torch.tensor([7, IGNORED]))
    (tensor([[1.]]), tensor([7]))
    """
    good = targets != IGNORED
    return (images, targets) if bool(good.all()) else (images[good], targets[good])
