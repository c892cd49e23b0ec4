"""Data sets of images with label maps, by expression: `camvid`, `ade20k`, `cityscapes`, `acdc`, `scenes`, `pairs`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from vitlab.core.bounds import Length, Range, Seed
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import parse_call
from vitlab.core.settings import check_settings
from vitlab.core.signatures import Setting, settings_of
from vitlab.core.user_path import user_path
from vitlab.data import acdc
from vitlab.data.folders import wrong_layout
from vitlab.data.scene_layout import SHAPES, TEXTURES, Cues
from vitlab.data.scene_set import MOST, TEST_SCENES, cost
from vitlab.data.scenes import CLASSES as SCENE_CLASSES
from vitlab.data.scenes import MEAN, MOST_OBJECTS, STD, Side
from vitlab.data.seeding import host_random
from vitlab.data.segmentation_files import matched, renamed
from vitlab.data.segmentation_pairs import IGNORE, PairData, PairFiles, ScenePairs

__all__ = ["CITYSCAPES_IDS", "check_pairs", "open_pairs", "pair_sets", "pair_settings"]

#: Label id of each of Cityscapes' 19 training classes.
CITYSCAPES_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)

_CITYSCAPES_ENDS = ("_leftImg8bit.png", "_gtFine_labelIds.png")

_Count = Annotated[int, Range(1, MOST, cost=cost)]
_Size = int | tuple[int, int]


def open_pairs(expression: str, *, root: str | Path | None = None, image_size: _Size | None = None) -> PairData:
    """Open the data set of an expression.

    Args:
        expression: a name of `pair_sets()`, with or without settings.
        root: the folder that contains `camvid`, `ADEChallengeData2016`, …; default: the environment variable
            VITLAB_DATA.
        image_size: side or (height, width) of generated scenes, unless the expression sets `size`.

    >>> data = open_pairs("scenes(train=4, test=2, labels='shape')", image_size=16)
    >>> data.classes[:2], data.test[0][1].shape
    (('background', 'circle'), torch.Size([16, 16]))
    """
    name, settings = _parse(expression)
    return _OPENERS[name](_Location(name, root, image_size, expression.strip()), **settings)


def check_pairs(expression: str) -> None:
    """Raise if an expression names no data set, or if a setting is unknown, of the wrong type or out of range."""
    _parse(expression)


def pair_sets() -> dict[str, str]:
    """Returns the names of the data sets, each with a one-line description."""
    return {name: (inspect.getdoc(opener) or "").partition("\n")[0] for name, opener in _OPENERS.items()}


def pair_settings() -> dict[str, list[Setting]]:
    """Returns the settings of each data set with label maps."""
    return {name: settings_of(opener, 1) for name, opener in _OPENERS.items()}


def _parse(expression: str) -> tuple[str, dict[str, Any]]:
    name, settings = parse_call(expression)
    if name not in _OPENERS:
        raise unknown("data set with label maps", name, _OPENERS)
    check_settings(name, _OPENERS[name], settings, 1)
    return name, settings


class _Location:
    """Where data sets are searched, and the size of generated images."""

    def __init__(self, name: str, root: str | Path | None, image_size: _Size | None, expression: str) -> None:
        self.name, self.image_size, self.expression = name, image_size, expression
        self._root = root or os.environ.get("VITLAB_DATA")

    def folder(self, *names: str) -> Path:
        """The first of these folders that exists in the root; the root itself if its last name is one of them."""
        tree = _TREES[self.name]
        if not self._root:
            raise wrong_layout(f"{self.name} is read from a folder; set root= or VITLAB_DATA", tree)
        root = user_path(self._root)
        for folder in (*(root / name for name in names), *([root] if root.name in names else [])):
            if folder.is_dir():
                return folder
        raise wrong_layout(f"no folder {names[0]} in {root}", tree)

    def path(self, text: str) -> Path:
        """A path, absolute or relative to the working directory or the root."""
        here = user_path(text)
        inside = user_path(self._root) / here if self._root else here
        if not (here.is_dir() or inside.is_dir()):
            raise VitlabError(f"no folder {text!r}; expected a folder of images or label maps")
        return here if here.is_dir() else inside

    def data(self, train: Any, test: Any, classes: Sequence[str]) -> PairData:
        """A data set of real images."""
        return PairData(self.expression, train, test, tuple(classes), IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)


def _scenes(
    location: _Location,
    train: _Count = 10_000,
    test: _Count = 2_000,
    size: Side | tuple[Side, Side] | None = None,
    seed: Seed = 0,
    objects: Annotated[int, Range(1, MOST_OBJECTS)] = 4,
    cues: Cues = "free",
    labels: Literal["class", "shape", "texture"] = "class",
) -> PairData:
    """Generated scenes with masks, 25 classes and background (or 5, with labels='shape'); nothing to download."""
    side = size or location.image_size or 32
    frame = (side, side) if isinstance(side, int) else (side[0], side[1])
    names = {"class": SCENE_CLASSES, "shape": SHAPES, "texture": TEXTURES}[labels]
    splits = [
        ScenePairs(range(start, start + count), frame, seed, objects, cues, labels)
        for count, start in ((train, 0), (test, TEST_SCENES))
    ]
    return PairData(location.expression, splits[0], splits[1], ("background", *names), MEAN, STD)


def _camvid(location: _Location, test: Literal["val", "test"] = "test") -> PairData:
    """CamVid, 367 + 101 + 233 street scenes of 360×480, 11 classes."""
    folder = location.folder("camvid", "CamVid")
    names = [line.strip() for line in _text(folder / "classes.txt").splitlines() if line.strip()]
    classes = _first(names, 11, folder / "classes.txt")
    table = (*((label, label) for label in range(11)), (11, IGNORE), (IGNORE, IGNORE))
    splits = {
        split: PairFiles(matched(folder / split / "images", folder / split / "labels"), len(classes), table)
        for split in ("train", test)
    }
    return location.data(splits["train"], splits[test], classes)


def _ade20k(location: _Location) -> PairData:
    """ADE20K (SceneParse150), 20,210 + 2,000 images, 150 classes; label 0 is ignored."""
    folder = location.folder("ADEChallengeData2016", "ade20k", "ADE20K")
    table = ((0, IGNORE), *((label + 1, label) for label in range(150)))
    splits = [
        PairFiles(matched(folder / "images" / split, folder / "annotations" / split), 150, table)
        for split in ("training", "validation")
    ]
    return location.data(splits[0], splits[1], _ade_classes(folder))


def _cityscapes(location: _Location) -> PairData:
    """Cityscapes, 2,975 + 500 street scenes of 1024×2048 with fine labels, 19 classes."""
    folder = location.folder("cityscapes", "Cityscapes")
    ids = dict(zip(CITYSCAPES_IDS, range(19), strict=True))
    table = tuple((value, ids.get(value, IGNORE)) for value in (*range(34), 255))
    splits = [
        PairFiles(renamed(folder / "leftImg8bit" / split, folder / "gtFine" / split, *_CITYSCAPES_ENDS), 19, table)
        for split in ("train", "val")
    ]
    return location.data(splits[0], splits[1], acdc.CLASSES)


def _acdc(location: _Location, condition: Literal["all", "fog", "night", "rain", "snow"] = "all") -> PairData:
    """ACDC, street scenes in fog, at night, in rain and in snow, 19 classes; validation images are the test set."""
    folder = location.folder("acdc", "ACDC")
    conditions = acdc.CONDITIONS if condition == "all" else (condition,)
    splits = [PairFiles(tuple(acdc.labelled_paths(folder, split, conditions)), 19) for split in ("train", "val")]
    return location.data(splits[0], splits[1], acdc.CLASSES)


def _pairs(
    location: _Location,
    images: str,
    labels: str,
    classes: Annotated[int, Range(2, 255)] | Annotated[list[str], Length(2, 255)],
    test_images: str = "",
    test_labels: str = "",
    holdout: Annotated[float, Range(0, 1, open_low=True, open_high=True)] = 0.2,
    ignore: Annotated[int, Range(0, 255)] = IGNORE,
    seed: Seed = 0,
) -> PairData:
    """Any folder of images with a folder of label maps of the same names; without test folders a share is held out."""
    names = [str(label) for label in range(classes)] if isinstance(classes, int) else classes
    table = (*((label, label) for label in range(len(names)) if label != ignore), (ignore, IGNORE))
    files = PairFiles(matched(location.path(images), location.path(labels)), len(names), table)
    if bool(test_images) != bool(test_labels):
        raise VitlabError("pairs needs both test_images= and test_labels=, or neither")
    if test_images:
        held = PairFiles(matched(location.path(test_images), location.path(test_labels)), len(names), table)
        return location.data(files, held, names)
    order = host_random("holdout", seed).permutation(len(files)).tolist()
    count = min(max(1, round(holdout * len(files))), len(files) - 1)
    if count < 1:
        raise VitlabError(f"{images} has one image; expected at least one for training and one for the test")
    return location.data(files.subset(sorted(order[count:])), files.subset(sorted(order[:count])), names)


_OPENERS: dict[str, Callable[..., PairData]] = {
    "scenes": _scenes,
    "camvid": _camvid,
    "ade20k": _ade20k,
    "cityscapes": _cityscapes,
    "acdc": _acdc,
    "pairs": _pairs,
}

_TREES = {
    "camvid": "  ROOT/camvid/{train,val,test}/{images,labels}/<frame>.*\n  ROOT/camvid/classes.txt",
    "ade20k": "  ROOT/ADEChallengeData2016/{images,annotations}/{training,validation}/ADE_*.{jpg,png}",
    "cityscapes": "  ROOT/cityscapes/leftImg8bit/{train,val}/<city>/*_leftImg8bit.png\n"
    "  ROOT/cityscapes/gtFine/{train,val}/<city>/*_gtFine_labelIds.png",
    "acdc": acdc.TREE.replace("ROOT/", "ROOT/acdc/"),
}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise VitlabError(f"cannot read {path} ({error})") from error


def _ade_classes(folder: Path) -> list[str]:
    """The names in `objectInfo150.txt`, if it is there; else numbers."""
    file = folder / "objectInfo150.txt"
    if not file.is_file():
        return [str(label) for label in range(150)]
    names = [line.split("\t")[-1].partition(",")[0].strip() for line in _text(file).splitlines()[1:]]
    return _first(names, 150, file)


def _first(names: list[str], count: int, file: Path) -> list[str]:
    """The first names of a file; raises if it has fewer: the label maps have classes without a name."""
    if len(names) < count:
        raise VitlabError(f"{file} has {len(names)} names of classes; expected {count}")
    return names[:count]
