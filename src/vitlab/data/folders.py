"""Readers for image folders: one folder per class, with or without folders for the splits.

    ROOT/<class>/….jpg               evaluation; training and evaluation with `holdout`
    ROOT/train/<class>/….jpg         training
    ROOT/{test,val}/<class>/….jpg    evaluation
    ROOT/….jpg                       analyses that need no labels

Hidden files and folders, and files without an image suffix, are skipped.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from vitlab.core.bounds import PositiveShare, Share
from vitlab.core.errors import VitlabError
from vitlab.core.settings import check_value
from vitlab.data.images import UNLABELLED, Channels, DataSet, ImageFiles, from_splits
from vitlab.data.subsets import fraction_of_each_class

SUFFIXES = frozenset([".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"])
TREE = """\
  ROOT/train/<class>/<any name>.jpg
  ROOT/test/<class>/<any name>.jpg     (or val/)
or, without splits,
  ROOT/<class>/<any name>.jpg
or, without labels,
  ROOT/<any name>.jpg"""

_TRAIN, _TEST = ("train", "training"), ("test", "val", "valid", "validation")


def open_folder(
    root: str | Path,
    holdout: float | None = None,
    seed: int = 0,
    mean: Channels = IMAGENET_DEFAULT_MEAN,
    std: Channels = IMAGENET_DEFAULT_STD,
) -> DataSet:
    """Open a folder of images with one folder per class. Classes and files are in natural order: 9 before 10.

    Args:
        root: contains `train` and `test` (or `val`; `test` has priority), or the class folders.
        holdout: without splits, the fraction of each class that is held out for testing. None: all images are for
            testing and none for training, so that the splits cannot overlap by accident.
        seed: selects the held-out images.
        mean, std: of the pixels in [0, 1], for normalisation; default ImageNet's.
    """
    check_value("folder", "mean", mean, tuple[Share, Share, Share])
    check_value("folder", "std", std, tuple[PositiveShare, PositiveShare, PositiveShare])
    root = Path(root)
    if not root.is_dir():
        raise wrong_layout(f"no folder {root}", TREE)
    train_at, test_at = _first(root, _TRAIN), _first(root, _TEST)
    if train_at is None and test_at is None:
        return _unsplit(root, holdout, seed, (mean, std))
    if test_at is None:
        raise wrong_layout(f"{root} has {_TRAIN[0]}/ but no {_TEST[0]}/ or {_TEST[1]}/", TREE)
    if holdout is not None:
        raise VitlabError(f"invalid holdout={holdout!r}; {root} already has {test_at.name}/; omit holdout")
    splits = [at for at in (train_at, test_at) if at is not None]
    classes = sorted({name for at in splits for name in class_folders(at)}, key=natural)
    if not classes:
        raise wrong_layout(f"{test_at} contains no class folders", TREE)
    train = None if train_at is None else gather(train_at, classes, mean, std)
    return from_splits(str(root), train, gather(test_at, classes, mean, std, "mark"))


def gather(
    root: Path,
    classes: Sequence[str],
    mean: Channels = IMAGENET_DEFAULT_MEAN,
    std: Channels = IMAGENET_DEFAULT_STD,
    on_broken: Literal["replace", "mark"] = "replace",
    order: Callable[[str], Any] | None = None,
) -> ImageFiles:
    """Returns the images below `root/<class>/`, at any depth, sorted by class; warns about classes without images.

    `order` is the sort key of the files; default natural order.
    """
    by_class = [_images(root, name, order or natural) for name in classes]
    counts = torch.tensor([len(names) for names in by_class])
    empty = [name for name, names in zip(classes, by_class, strict=True) if not names]
    if len(empty) == len(classes):
        raise wrong_layout(f"{root} contains no images in any of its {len(classes)} classes", TREE)
    if empty:
        warnings.warn(f"{root} has no images of {len(empty)} classes: {_some(empty)}", stacklevel=2)
    files = np.array([os.fsencode(name) for names in by_class for name in names], dtype=np.bytes_)
    labels = torch.arange(len(classes)).repeat_interleave(counts)
    return ImageFiles(root, files, labels, tuple(classes), mean, std, on_broken)


def class_folders(root: Path) -> list[str]:
    """Returns the names of the subfolders that are not hidden, in natural order."""
    with os.scandir(root) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    return sorted(names, key=natural)


def is_image(name: str) -> bool:
    """Returns whether a file name has an image suffix and is not hidden.

    >>> is_image("cat.JPEG"), is_image("._cat.jpg"), is_image("labels.csv")
    (True, False, False)
    """
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES


def natural(name: str) -> tuple[list[str | int], str]:
    """Sort key that compares numbers in a name as numbers.

    >>> sorted(["a10", "a9", "B1"], key=natural)
    ['a9', 'a10', 'B1']
    """
    pieces = re.split(r"([0-9]+)", name.lower())
    return [int(piece) if i % 2 else piece for i, piece in enumerate(pieces)], name


def wrong_layout(what: str, tree: str) -> VitlabError:
    """Returns the error for an unexpected folder layout: one line, followed by the expected tree."""
    return VitlabError(f"{what}; expected:", tree)


def _unsplit(root: Path, holdout: float | None, seed: int, normalisation: tuple[Channels, Channels]) -> DataSet:
    classes = class_folders(root)
    if not classes:
        return from_splits(str(root), None, _without_labels(root, holdout, normalisation))
    test = gather(root, classes, *normalisation, "mark")
    if holdout is None:
        return from_splits(str(root), None, test)
    if not isinstance(holdout, float) or not 0 < holdout < 1:
        raise VitlabError(f"invalid holdout={holdout!r}; expected a number between 0 and 1, for example 0.2 for 20 %")
    held = fraction_of_each_class(test.labels, holdout, seed)
    if held.all():
        raise VitlabError(f"invalid holdout={holdout}; {root} would have no training images; use a smaller value")
    return from_splits(str(root), replace(test.subset(~held), on_broken="replace"), test.subset(held))


def _without_labels(root: Path, holdout: float | None, normalisation: tuple[Channels, Channels]) -> ImageFiles:
    """Returns the images directly in a folder, without labels, for analyses that need none."""
    names = sorted((name for name in os.listdir(root) if is_image(name)), key=natural)
    if not names:
        raise wrong_layout(f"{root} contains no class folders and no images", TREE)
    if holdout is not None:
        raise VitlabError(f"invalid holdout={holdout!r}; the images in {root} have no labels to train on; omit holdout")
    files = np.array([os.fsencode(name) for name in names], dtype=np.bytes_)
    labels = torch.full((len(names),), UNLABELLED)
    return ImageFiles(root, files, labels, (), *normalisation, "mark")


def _images(root: Path, name: str, order: Callable[[str], Any]) -> list[str]:
    """Returns the sorted paths, relative to `root`, of the images of one class, including broken links."""

    def fail(error: OSError) -> None:
        raise VitlabError(f"cannot read the folder {error.filename} ({error.strerror})")

    top, found = root / name, []
    if not top.is_dir():
        return []
    for where, folders, files in os.walk(top, onerror=fail):
        folders[:] = [folder for folder in folders if not folder.startswith(".")]
        below = os.path.relpath(where, root)
        found += [os.path.join(below, file) for file in files if is_image(file)]
    return sorted(found, key=order)


def _first(root: Path, names: Sequence[str]) -> Path | None:
    return next((root / name for name in names if (root / name).is_dir()), None)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
