"""The published robustness sets of ImageNet as their archives unpack: where they lie, and the label of each folder.

ImageNet-A, -R, -Sketch, -C and -P have one folder for each WordNet id, ImageNet-V2 one for each label, `0` to `999`.
Labels are always those of ImageNet-1K: a pretrained model's outputs then mean what they say.
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
from vitlab.data.folders import class_folders, gather, is_image, wrong_layout
from vitlab.data.imagenet import wordnet_ids
from vitlab.data.images import ImageFiles, ImageSet

Images = TypeVar("Images", bound=ImageSet)

#: Folders that the archives of ImageNet-C and ImageNet-P may bring around a corruption.
GROUPS = ("noise", "blur", "weather", "digital", "extra")


@cache
def labels_1000() -> dict[str, int]:
    """The label of each WordNet id of ImageNet-1K.

    >>> labels_1000()["n01440764"], labels_1000()["n15075141"]  # tench, toilet tissue
    (0, 999)
    """
    return {name: label for label, name in enumerate(wordnet_ids())}


@cache
def labels_200(which: Literal["a", "r"]) -> dict[str, int]:
    """The 200 WordNet ids of ImageNet-A or ImageNet-R, each with its label in ImageNet-1K; the lists are timm's.

    >>> labels_200("a")["n01498041"], labels_200("r")["n01443537"]  # stingray, goldfish
    (6, 1)
    """
    text = pkgutil.get_data("timm.data", f"_info/imagenet_{which}_synsets.txt")
    if text is None:
        raise VitlabError(f"this timm has no list of the classes of ImageNet-{which.upper()}; install timm>=1.0.20")
    return {name: labels_1000()[name] for name in text.decode().split()}


def labels_by_number() -> dict[str, int]:
    """The folders of ImageNet-V2: `10` is label 10, though it sorts between `1` and `2`."""
    return {str(label): label for label in range(1000)}


def locate(root: str | Path, names: Sequence[str], holds: Callable[[Path], bool], tree: str) -> Path:
    """The folder of a set: `root/<name>` for the first of the names that holds it, else `root` itself.

    Args:
        root: the folder that the set was unpacked to, or the set itself.
        names: how the set's folder is called.
        holds: whether a folder is the set.
        tree: the official layout, for the error.
    """
    root = Path(root).expanduser()
    if not root.is_dir():
        raise wrong_layout(f"there is no folder {root}", tree)
    for folder in (*(root / name for name in names), root):
        if folder.is_dir() and holds(folder):
            return folder
    raise wrong_layout(f"no {names[0]} in {root}", tree)


def under_group(folder: Path, name: str) -> Path | None:
    """`folder/<name>` or `folder/<group>/<name>`, whichever is there."""
    places = (folder / name, *(folder / group / name for group in GROUPS))
    return next((place for place in places if place.is_dir()), None)


def has_class(folder: Path, labels: Mapping[str, int]) -> bool:
    """Whether a folder holds a folder of any of these classes."""
    return any(name in labels for name in class_folders(folder))


def open_classes(folder: Path, labels: Mapping[str, int], tree: str) -> ImageFiles:
    """The images of a folder of classes, with their labels in ImageNet-1K; broken ones will be marked.

    Args:
        folder: holds `<class>/<any name>.JPEG`.
        labels: of each folder's name.
        tree: the official layout, for the error.
    """
    there = set(class_folders(folder))
    present = [name for name in labels if name in there]
    strangers = sorted(there.difference(labels))
    if not present:
        raise wrong_layout(f"{folder} holds no folder of a class ({', '.join(strangers[:3]) or 'it is empty'})", tree)
    elsewhere = [name for name in strangers if name in labels_1000()]
    if elsewhere:  # 200 folders of ImageNet's own would pass for ImageNet-A, and give a number
        raise wrong_layout(f"{folder} holds {elsewhere[0]}, which is no class of this set; is it another one?", tree)
    if strangers:
        warnings.warn(f"{folder} holds {len(strangers)} folders that are no class: {strangers[0]}, …", stacklevel=2)
    images = gather(folder, present, on_broken="mark", order=str)
    table = torch.tensor([labels[name] for name in present])
    return replace(images, labels=table[images.labels], classes=wordnet_ids())


def missing_classes(images: ImageFiles, labels: Mapping[str, int]) -> list[str]:
    """The classes of a set that have no image here."""
    there = set(images.labels.tolist())
    return [name for name, label in labels.items() if label not in there]


def spread(images: Images, count: int | None) -> Images:
    """So many images at even distances, so that all classes have their share; all with None.

    The first of a set would be those of its first classes.
    """
    if count is None:
        return images
    if not isinstance(count, int) or not 2 <= count <= len(images):
        raise VitlabError(f"images={count!r}: the set holds {len(images)}; ask for 2 or more of them, or None for all")
    return images.subset(torch.arange(count) * len(images) // count)  # type: ignore[return-value]


def open_validation(folder: Path, tree: str) -> tuple[ImageFiles, bool]:
    """The validation images of ImageNet, in folders of classes or flat as the challenge's archive unpacks.

    Returns:
        The images, and whether folders say their labels; flat ones all have label 0.
    """
    if has_class(folder, labels_1000()):
        return open_classes(folder, labels_1000(), tree), True
    names = sorted(name for name in os.listdir(folder) if is_image(name))
    if not names:
        raise wrong_layout(f"{folder} holds no images and no folders of classes", tree)
    files = np.array([os.fsencode(name) for name in names], dtype=np.bytes_)
    nobody = torch.zeros(len(names), dtype=torch.int64)
    return ImageFiles(folder, files, nobody, wordnet_ids(), on_broken="mark"), False


def numbers(images: ImageFiles, tree: str) -> list[int]:
    """Which of the 50,000 validation images these are, 1 to 50,000, as their names say."""
    found = []
    for i, name in enumerate(images.names.tolist()):
        match = re.search(rb"ILSVRC2012_val_(\d{8})\.\w+$", name)
        if not match or not 1 <= int(match[1]) <= 50_000:
            raise wrong_layout(f"{images.path(i)} is not called as a validation image of ImageNet is", tree)
        found.append(int(match[1]))
    return found
