"""Readers for the published robustness sets of ImageNet, in the layout of their archives.

ImageNet-A, -R, -Sketch, -C and -P have one folder per WordNet id, ImageNet-V2 one per label, `0` to `999`. Labels are
always those of ImageNet-1K, so that they match the outputs of pretrained models.
"""

from __future__ import annotations

import os
import pkgutil
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import torch

from vitlab.core.errors import VitlabError
from vitlab.core.user_path import user_path
from vitlab.data.folders import class_folders, gather, is_image, wrong_layout
from vitlab.data.imagenet import wordnet_ids
from vitlab.data.images import ImageFiles, ImageSet

Images = TypeVar("Images", bound=ImageSet)

#: Parent folders of corruptions in the archives of ImageNet-C and ImageNet-P.
GROUPS = ("noise", "blur", "weather", "digital", "extra")


@cache
def labels_1000() -> dict[str, int]:
    """Returns the label of each WordNet id of ImageNet-1K.

    >>> labels_1000()["n01440764"], labels_1000()["n15075141"]  # tench, toilet tissue
    (0, 999)
    """
    return {name: label for label, name in enumerate(wordnet_ids())}


@cache
def labels_200(which: Literal["a", "r"]) -> dict[str, int]:
    """Returns the 200 WordNet ids of ImageNet-A or ImageNet-R with their ImageNet-1K labels, from timm's lists.

    >>> labels_200("a")["n01498041"], labels_200("r")["n01443537"]  # stingray, goldfish
    (6, 1)
    """
    text = pkgutil.get_data("timm.data", f"_info/imagenet_{which}_synsets.txt")
    if text is None:
        raise VitlabError(f"this timm has no list of the classes of ImageNet-{which.upper()}; install timm>=1.0.20")
    return {name: labels_1000()[name] for name in text.decode().split()}


def labels_by_number() -> dict[str, int]:
    """Returns the label of each folder of ImageNet-V2: `10` is label 10, though it sorts between `1` and `2`."""
    return {str(label): label for label in range(1000)}


def locate(root: str | Path, names: Sequence[str], holds: Callable[[Path], bool], tree: str) -> Path:
    """Returns the folder of a set: `root/<name>` for the first name that contains it, else `root`.

    Args:
        root: the folder that the set was unpacked to, or the set itself.
        names: possible names of the set's folder.
        holds: returns whether a folder is the set.
        tree: the official layout, for the error.
    """
    root = user_path(root)
    if not root.is_dir():
        raise wrong_layout(f"no folder {root}", tree)
    for folder in (*(root / name for name in names), root):
        if folder.is_dir() and holds(folder):
            return folder
    raise wrong_layout(f"no {names[0]} in {root}", tree)


def under_group(folder: Path, name: str) -> Path | None:
    """Returns `folder/<name>` or `folder/<group>/<name>`, whichever exists; None if neither does."""
    places = (folder / name, *(folder / group / name for group in GROUPS))
    return next((place for place in places if place.is_dir()), None)


def has_class(folder: Path, labels: Mapping[str, int]) -> bool:
    """Returns whether a folder contains a folder of any of these classes."""
    return any(name in labels for name in class_folders(folder))


def open_classes(folder: Path, labels: Mapping[str, int], tree: str) -> ImageFiles:
    """Open the images of class folders, with ImageNet-1K labels; unreadable images will be marked.

    Args:
        folder: contains `<class>/<any name>.JPEG`.
        labels: label of each folder name.
        tree: the official layout, for the error.
    """
    there = set(class_folders(folder))
    present = [name for name in labels if name in there]
    extra = sorted(there.difference(labels))
    if not present:
        raise wrong_layout(f"{folder} contains no class folders ({', '.join(extra[:3]) or 'it is empty'})", tree)
    other_classes = [name for name in extra if name in labels_1000()]
    if other_classes:  # otherwise the folders of ImageNet-1K would be accepted as ImageNet-A
        raise wrong_layout(f"{folder} contains {other_classes[0]}, which is not a class of this set", tree)
    if extra:
        warnings.warn(f"{folder} contains {len(extra)} folders that are not classes: {extra[0]}, …", stacklevel=2)
    images = gather(folder, present, on_broken="mark", order=str)
    table = torch.tensor([labels[name] for name in present])
    return replace(images, labels=table[images.labels], classes=wordnet_ids())


def missing_classes(images: ImageFiles, labels: Mapping[str, int]) -> list[str]:
    """Returns the classes of a set that have no images here."""
    there = set(images.labels.tolist())
    return [name for name, label in labels.items() if label not in there]


def spread(images: Images, count: int | None) -> Images:
    """Returns `count` evenly spaced images, so that all classes are represented; all images with None."""
    if count is None:
        return images
    if not isinstance(count, int) or not 2 <= count <= len(images):
        raise VitlabError(f"invalid images={count!r}; expected 2 to {len(images)}, or None for all")
    return images.subset(torch.arange(count) * len(images) // count)  # type: ignore[return-value]


def open_validation(folder: Path, tree: str) -> tuple[ImageFiles, bool]:
    """Open the validation images of ImageNet, in class folders or flat as in the challenge's archive.

    Returns:
        The images, and whether they are in class folders; flat images all have label 0.
    """
    if has_class(folder, labels_1000()):
        return open_classes(folder, labels_1000(), tree), True
    names = sorted(name for name in os.listdir(folder) if is_image(name))
    if not names:
        raise wrong_layout(f"{folder} contains no images and no class folders", tree)
    files = np.array([os.fsencode(name) for name in names], dtype=np.bytes_)
    placeholder = torch.zeros(len(names), dtype=torch.int64)
    return ImageFiles(folder, files, placeholder, wordnet_ids(), on_broken="mark"), False


def numbers(images: ImageFiles, tree: str) -> list[int]:
    """Returns the numbers of validation images, 1 to 50,000, from their file names."""
    image_numbers = []
    for i, name in enumerate(images.names.tolist()):
        match = re.search(rb"ILSVRC2012_val_(\d{8})\.\w+$", name)
        if not match or not 1 <= int(match[1]) <= 50_000:
            raise wrong_layout(f"{images.path(i)} does not have the name of a validation image of ImageNet", tree)
        image_numbers.append(int(match[1]))
    return image_numbers
