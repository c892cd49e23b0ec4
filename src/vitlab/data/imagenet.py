"""Reader for ImageNet-1K in the layout of its archives: `train` and `val`, each with one folder per WordNet id.

Labels are always those of ImageNet-1K, the position of the WordNet id among the 1,000 in sorted order, even if a
folder contains only some of the classes, so that they match the outputs of pretrained models.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from timm.data import ImageNetInfo

from vitlab.core.errors import VitlabError
from vitlab.data.folders import class_folders, gather, is_image, wrong_layout
from vitlab.data.images import DataSet, ImageFiles, from_splits

TREE = """\
  ROOT/train/n01440764/n01440764_18.JPEG           1,000 folders, 1,281,167 images
  ROOT/val/n01440764/ILSVRC2012_val_00000293.JPEG  1,000 folders, 50,000 images
or, for evaluation only,
  ROOT/n01440764/….JPEG                            1,000 folders"""

_OFFICIAL = {"train": 1_281_167, "val": 50_000}


@cache
def wordnet_ids() -> tuple[str, ...]:
    """Returns the 1,000 WordNet ids of ImageNet-1K, in label order.

    >>> len(wordnet_ids()), wordnet_ids()[0]
    (1000, 'n01440764')
    """
    return tuple(sorted(ImageNetInfo("imagenet-1k").label_names()))


def open_imagenet(root: str | Path, full: bool = True) -> DataSet:
    """Open ImageNet-1K.

    Args:
        root: contains `train` and `val`, or `val` only, or the class folders. Without `train` the set is for evaluation
            only.
        full: whether all 1,000 classes are required. With False some are enough; labels are those of ImageNet-1K.
    """
    root = Path(root)
    if not root.is_dir():
        raise wrong_layout(f"no folder {root}", TREE)
    train_at, test_at = root / "train", root / "val"
    if not test_at.is_dir():
        if train_at.is_dir():
            raise wrong_layout(f"{root} has train/ but no val/", TREE)
        return from_splits("imagenet", None, _split(root, full, "mark"))
    train = _split(train_at, full, "replace") if train_at.is_dir() else None
    return from_splits("imagenet", train, _split(test_at, full, "mark"))


def _split(folder: Path, full: bool, on_broken: Literal["replace", "mark"]) -> ImageFiles:
    known, there = wordnet_ids(), set(class_folders(folder))
    present = [name for name in known if name in there]
    if not present:
        raise wrong_layout(_reason_for_no_classes(folder, sorted(there)), TREE)
    if full and len(present) < len(known):
        missing = [name for name in known if name not in there]
        raise VitlabError(
            f"{folder} has {len(present)} of the 1,000 classes of ImageNet-1K ({missing[0]} is missing); "
            "set full=False to use them"
        )
    extra = sorted(there.difference(known))
    if extra:
        warnings.warn(f"{folder} contains {len(extra)} folders that are not classes: {extra[0]}, …", stacklevel=3)
    # In string order, so that indices agree with those of torchvision's ImageFolder.
    images = gather(folder, present, on_broken=on_broken, order=str)
    if full and len(images) != _OFFICIAL.get(folder.name, len(images)):
        official = _OFFICIAL[folder.name]
        warnings.warn(f"{folder} contains {len(images):,} images, ImageNet-1K has {official:,}", stacklevel=3)
    return _with_all_classes(images, present)


def _with_all_classes(images: ImageFiles, present: Sequence[str]) -> ImageFiles:
    """Returns the same images with the labels and classes of ImageNet-1K."""
    position = {name: label for label, name in enumerate(wordnet_ids())}
    table = torch.tensor([position[name] for name in present])
    return replace(images, labels=table[images.labels], classes=wordnet_ids())


def _reason_for_no_classes(folder: Path, others: Sequence[str]) -> str:
    loose = sum(is_image(name) for name in os.listdir(folder))
    if loose:
        return f"{folder} has no class folders; move its {loose:,} images into one folder per class"
    if others:
        return f"{folder} has {others[0]!r} and {len(others) - 1} other folders, none of them a class of ImageNet-1K"
    return f"{folder} is empty"
