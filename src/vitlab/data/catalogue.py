"""Data sets by expression: `scenes(train=20000)`, `cifar100(fraction=0.1)`, `imagenet(classes=9)`, `folder('/photos')`.

A path by itself (`/photos`, `./photos`, `C:\\photos`) is a folder of images. In quotes, the backslashes of a Windows
path may be written once or twice.

Every expression also takes `classes` (the first N, or a list of names), `fraction` (of the training images) and `seed`
(selects the images of the fraction and the generated scenes).
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PureWindowsPath
from typing import Annotated, Any, Literal

from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from vitlab.core.bounds import Length, PositiveShare, Range, Seed, Share
from vitlab.core.descriptions import origin
from vitlab.core.errors import ExtensionError, VitlabError, unknown
from vitlab.core.expressions import parse_call
from vitlab.core.extensions import extensions, resolve_all
from vitlab.core.settings import check_settings
from vitlab.core.signatures import Setting, settings_of
from vitlab.core.user_path import user_path
from vitlab.data import cifar, coco, folders, imagenet
from vitlab.data.images import Channels, DataSet
from vitlab.data.scene_layout import Cues
from vitlab.data.scene_set import MOST, SceneLabels, cost, open_scenes
from vitlab.data.scenes import MOST_OBJECTS, Side
from vitlab.data.subsets import narrow

#: Subfolders of the root that are searched for ImageNet-1K, in this order.
_IMAGENET_FOLDERS = ("imagenet", "ImageNet", "imagenet-1k", "ILSVRC2012", "ILSVRC/Data/CLS-LOC", "imagenet-val-1000")

_Count = Annotated[int, Range(1, MOST, cost=cost)]
_Severity = Annotated[int, Range(1, 5)]
_Holdout = Annotated[float, Range(0, 1, open_low=True, open_high=True)]

Size = int | tuple[int, int]


def open_data(expression: str, *, root: str | Path | None = None, image_size: Size | None = None) -> DataSet:
    """Open the data set of an expression.

    Args:
        expression: a name of `data_sets()`, with or without settings, or the path of a folder.
        root: the folder that contains `cifar-100-binary`, `imagenet`, …; default: the environment variable VITLAB_DATA.
        image_size: side or (height, width) of generated scenes, unless the expression sets `size`. Real images keep
            their size; augmentation resizes them to the model's input size.

    >>> data = open_data("scenes(train=50, test=20, classes=5)", image_size=16)
    >>> data.classes[0], data.test[0][0].size
    ('plain circle', (16, 16))
    """
    name, settings = read_expression(expression)
    opener = _openers()[name]
    own = {key: settings[key] for key in inspect.signature(opener).parameters if key in settings}
    narrowing = {key: settings[key] for key in _NARROWING if key in settings}
    data = opener(Location(name, root, image_size), **own)
    if not isinstance(data, DataSet):
        raise ExtensionError(
            f"data set {name!r} of {origin('data', name)} returned {type(data).__name__}; expected a DataSet"
        )
    return narrow(replace(data, name=expression.strip()), **narrowing)


def check_data(expression: str) -> None:
    """Raise if an expression names no data set, or if a setting is unknown, of the wrong type or out of range.

    Nothing is read or drawn, so that a mistake is reported before a model is loaded.

    >>> check_data("scenes(train=-1)")
    Traceback (most recent call last):
    vitlab.core.errors.VitlabError: scenes(train=-1): expected an integer from 1 to 10,000,000
    """
    read_expression(expression)


def read_expression(expression: str) -> tuple[str, dict[str, Any]]:
    """Returns the name of a data set and its settings, after validation."""
    name, settings = _parse(expression)
    known = _openers()
    if name not in known:
        if Path(name).is_dir():
            raise VitlabError(f"no data set {name!r}; to open the folder of that name write ./{name}")
        raise unknown("data set", name, known)
    check_settings(name, known[name], settings, 1, _NARROWING)
    return name, settings


def _parse(expression: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and settings of an expression; a path by itself is a folder.

    >>> _parse("./photos (1)")
    ('folder', {'path': './photos (1)'})
    >>> _parse("folder(/data/photos)")
    ('folder', {'path': '/data/photos'})
    """
    if not isinstance(expression, str):
        return parse_call(expression)
    text = expression.strip()
    name = text.partition("(")[0].strip()
    if text in (".", "..", "~") or "/" in name or "\\" in name:
        return "folder", {"path": text}
    if unquoted := _UNQUOTED.match(text):
        return "folder", {"path": unquoted["path"].strip()}
    return parse_call(_WINDOWS.sub(_escaped, text), first="path" if name in ("folder", "imagenet", "coco") else "")


#: A folder whose path is not in quotes, as `folder(/photos)`, and no setting.
_UNQUOTED = re.compile(r"""^folder\((?P<path>[^'"=,()]*[/\\.~][^'"=,()]*)\)$""")

#: A quoted path that starts with a drive or, unless its backslashes are doubled, with the name of a server.
_WINDOWS = re.compile(r"""(?P<quote>['"])(?P<path>(?:[A-Za-z]:\\|\\\\(?!\\)).*?)(?P=quote)""")


def _escaped(match: re.Match[str]) -> str:
    """Double all backslashes of a Windows path: otherwise `C:\\new` would contain a line break."""
    path = match["path"] if match["path"].startswith("\\") else match["path"].replace("\\\\", "\\")
    return match["quote"] + path.replace("\\", "\\\\") + match["quote"]


def data_sets() -> dict[str, str]:
    """Returns the names of the data sets, each with a one-line description.

    >>> list(data_sets())
    ['scenes', 'cifar10', 'cifar100', 'cifar10c', 'cifar100c', 'imagenet', 'folder', 'coco']
    """
    return {name: (inspect.getdoc(opener) or "").partition("\n")[0] for name, opener in _openers().items()}


def data_settings() -> dict[str, list[Setting]]:
    """Returns the settings of each data set."""
    shared = [Setting(key, annotation, None) for key, annotation in _NARROWING.items()]
    found = {name: settings_of(opener, 1) for name, opener in _openers().items()}
    return {
        name: [*own, *(each for each in shared if each.name not in {setting.name for setting in own})]
        for name, own in found.items()
    }


@dataclass(frozen=True)
class Location:
    """Where data sets are searched, and the size of generated images.

    Args:
        name: of the data set.
        given: the folder of `--root` or `root=`; None for that of the environment variable VITLAB_DATA.
        image_size: side or (height, width) of generated images; None if it is not known.
    """

    name: str
    given: str | Path | None
    image_size: Size | None

    @property
    def root(self) -> Path:
        """The folder that contains the data sets."""
        root = self.given or os.environ.get("VITLAB_DATA")
        if not root:
            line = f"{self.name} is read from a folder; set root= or the environment variable VITLAB_DATA"
            if self.name not in _TREES:  # of an extension
                raise VitlabError(line)
            raise folders.wrong_layout(f"{line} (only scenes need no files)", _TREES[self.name])
        path = user_path(root)
        if not path.is_dir():
            origin = "root=" if self.given else "the environment variable VITLAB_DATA"
            raise VitlabError(f"no folder {path}; correct {origin}")
        return path


def _scenes(
    location: Location,
    train: _Count = 10_000,
    test: _Count = 2_000,
    size: Side | tuple[Side, Side] | None = None,
    seed: Seed = 0,
    objects: Annotated[int, Range(1, MOST_OBJECTS)] = 4,
    cues: Cues = "free",
    labels: SceneLabels = "class",
) -> DataSet:
    """Procedural pictures of textured shapes, 25 classes (or 5, with labels='shape'); nothing to download."""
    return open_scenes(train, test, size or location.image_size or 32, seed, objects, cues, labels)


def _cifar10(location: Location) -> DataSet:
    """CIFAR-10, 50,000 + 10,000 images of 32×32, 10 classes."""
    return cifar.open_cifar10(location.root)


def _cifar100(location: Location, labels: Literal["fine", "coarse"] = "fine") -> DataSet:
    """CIFAR-100, 50,000 + 10,000 images of 32×32, 100 classes (or 20, with labels='coarse')."""
    return cifar.open_cifar100(location.root, labels)


def _cifar10c(location: Location, corruption: str, severity: _Severity | None = None) -> DataSet:
    """CIFAR-10-C, one corruption of CIFAR-10's test images at one severity or all five."""
    return cifar.open_corrupted(location.root, "cifar10", corruption, severity)


def _cifar100c(location: Location, corruption: str, severity: _Severity | None = None) -> DataSet:
    """CIFAR-100-C, one corruption of CIFAR-100's test images at one severity or all five."""
    return cifar.open_corrupted(location.root, "cifar100", corruption, severity)


def _imagenet(location: Location, path: str | None = None, full: bool = True) -> DataSet:
    """ImageNet-1K, 1,281,167 + 50,000 images, 1,000 classes."""
    if path is not None:
        return imagenet.open_imagenet(_path(location, path), full)
    for folder in [location.root / name for name in _IMAGENET_FOLDERS]:
        if folder.is_dir():
            return imagenet.open_imagenet(folder, full)
    if any((location.root / name).is_dir() for name in ("val", imagenet.wordnet_ids()[0])):
        return imagenet.open_imagenet(location.root, full)
    searched = ", ".join(_IMAGENET_FOLDERS)
    raise folders.wrong_layout(f"no ImageNet-1K in {location.root} (searched for {searched})", _TREES["imagenet"])


def _folder(
    location: Location,
    path: str,
    holdout: _Holdout | None = None,
    seed: Seed = 0,
    mean: tuple[Share, Share, Share] = IMAGENET_DEFAULT_MEAN,
    std: tuple[PositiveShare, PositiveShare, PositiveShare] = IMAGENET_DEFAULT_STD,
) -> DataSet:
    """Any folder of images with one subfolder per class."""
    return folders.open_folder(_path(location, path), holdout, seed, _channels(mean), _channels(std))


def _coco(location: Location, path: str | None = None, train: str = "train2017", test: str = "val2017") -> DataSet:
    """Images with objects in the COCO format; other tasks than detection use the images only."""
    return coco.coco_images(coco.open_coco(coco_folder(location, path), train, test))


def coco_folder(location: Location, path: str | None) -> Path:
    """Returns the folder of a COCO set: the given path, else `coco` below the root."""
    return location.root / "coco" if path is None else _path(location, path)


#: Settings of every data set, for `narrow`.
_NARROWING: dict[str, Any] = {
    "classes": Annotated[int, Range(1, 10**6)] | Annotated[list[str], Length(1, 10**6, distinct=True)],
    "fraction": Annotated[float, Range(0, 1, open_low=True)],
    "seed": Seed,
}

_OPENERS: dict[str, Callable[..., DataSet]] = {
    "scenes": _scenes,
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "cifar10c": _cifar10c,
    "cifar100c": _cifar100c,
    "imagenet": _imagenet,
    "folder": _folder,
    "coco": _coco,
}


def _openers() -> dict[str, Callable[..., DataSet]]:
    """The functions that open data sets, by name; those of extensions are imported."""
    from vitlab.data.question_catalogue import question_sets
    from vitlab.data.segmentation_sets import pair_sets

    added = extensions("data", {**_OPENERS, **pair_sets(), **question_sets()})
    found = resolve_all(each.reference for each in added.values())
    return {**_OPENERS, **{name: found[each.reference] for name, each in added.items() if each.reference in found}}


_TREES = {
    "cifar10": cifar.CIFAR10.tree,
    "cifar100": cifar.CIFAR100.tree,
    "cifar10c": "  ROOT/CIFAR-10-C/{labels.npy, fog.npy, …}",
    "cifar100c": "  ROOT/CIFAR-100-C/{labels.npy, fog.npy, …}",
    "imagenet": imagenet.TREE.replace("ROOT/", "ROOT/imagenet/"),
    "folder": folders.TREE,
    "coco": coco.TREE.replace("ROOT/", "ROOT/coco/"),
}


def _path(location: Location, path: str) -> Path:
    """Resolve a path: absolute, relative to the working directory, or relative to the root."""
    if not path:
        raise VitlabError("invalid path=''; expected the path of a folder, in quotes")
    here = user_path(path)
    absolute = here.is_absolute() or PureWindowsPath(path).is_absolute()
    if here.is_dir() or absolute or not (location.given or os.environ.get("VITLAB_DATA")):
        return here
    return location.root / here


def _channels(value: Channels) -> Channels:
    return float(value[0]), float(value[1]), float(value[2])
