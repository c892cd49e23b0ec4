"""Data sets by expression: `scenes(train=20000)`, `cifar100(fraction=0.1)`, `imagenet(classes=9)`, `folder('/photos')`.

A path by itself (`/photos`, `./photos`, `C:\\photos`) is a folder of images. In quotes, the backslashes of a Windows
path may be written once or twice.

Every expression also takes `classes` (the first so many, or a list of names), `fraction` (of the training images) and
`seed` (which images the fraction holds, and which scenes are drawn).
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PureWindowsPath
from typing import Any, Literal

from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import parse_call
from vitlab.data import cifar, folders, imagenet, scenes
from vitlab.data.images import Channels, DataSet, ImageArray, join
from vitlab.data.subsets import narrow

#: Names under which ImageNet-1K is looked for below the root, in this order.
_IMAGENETS = ("imagenet", "ImageNet", "imagenet-1k", "ILSVRC2012", "ILSVRC/Data/CLS-LOC", "imagenet-val-1000")

#: Test scenes start here, whatever the number of training scenes: the two never meet.
_TEST_SCENES = 2**40

Size = int | tuple[int, int]


def open_data(expression: str, *, root: str | Path | None = None, image_size: Size | None = None) -> DataSet:
    """Open the data set that an expression names.

    Args:
        expression: a name of `data_sets()`, with settings or without, or the path of a folder.
        root: the folder that holds `cifar-100-binary`, `imagenet`, …; else the environment variable VITLAB_DATA.
        image_size: side or (height, width) at which scenes are drawn, unless they say their own `size`. Real images
            keep the size that they have: augmentation brings them to the model's.

    >>> data = open_data("scenes(train=50, test=20, classes=5)", image_size=16)
    >>> data.classes[0], data.test.images.shape[1:]
    ('plain circle', torch.Size([3, 16, 16]))
    """
    name, settings = _read(expression)
    if name not in _OPENERS:
        if Path(name).is_dir():
            raise VitlabError(f"no data set {name!r}; if the folder of that name is meant, write ./{name}")
        raise unknown("data set", name, _OPENERS)
    own = _own_settings(name, settings)
    narrowing = {key: settings[key] for key in _NARROWING if key in settings}
    data = replace(_OPENERS[name](_Place(name, root, image_size), **own), name=expression.strip())
    return narrow(data, **narrowing)


def _read(expression: str) -> tuple[str, dict[str, Any]]:
    """The name and settings of an expression; a path by itself is a folder.

    >>> _read("./photos (1)")
    ('folder', {'path': './photos (1)'})
    """
    if not isinstance(expression, str):
        return parse_call(expression)
    text = expression.strip()
    name = text.partition("(")[0].strip()
    if text in (".", "..", "~") or "/" in name or "\\" in name:
        return "folder", {"path": text}
    return parse_call(_WINDOWS.sub(_escaped, text), first="path" if name in ("folder", "imagenet") else "")


#: A quoted path that starts with a drive or, unless its backslashes are doubled, with the name of a server.
_WINDOWS = re.compile(r"""(?P<quote>['"])(?P<path>(?:[A-Za-z]:\\|\\\\(?!\\)).*?)(?P=quote)""")


def _escaped(match: re.Match[str]) -> str:
    """A Windows path with all backslashes doubled, as in a Python string: else `C:\\new` would have a line break."""
    path = match["path"] if match["path"].startswith("\\") else match["path"].replace("\\\\", "\\")
    return match["quote"] + path.replace("\\", "\\\\") + match["quote"]


def data_sets() -> dict[str, str]:
    """The names that an expression can start with, each with one line on what it is.

    >>> list(data_sets())
    ['scenes', 'cifar10', 'cifar100', 'cifar10c', 'cifar100c', 'imagenet', 'folder']
    """
    return {name: (inspect.getdoc(opener) or "").partition("\n")[0] for name, opener in _OPENERS.items()}


@dataclass(frozen=True)
class _Place:
    """Where to look, and how large to draw."""

    name: str
    given: str | Path | None
    image_size: Size | None

    @property
    def root(self) -> Path:
        """The folder that holds the data sets."""
        root = self.given or os.environ.get("VITLAB_DATA")
        if not root:
            raise folders.wrong_layout(
                f"{self.name} has to be read from a folder; give root=, or set the environment variable VITLAB_DATA "
                "(only scenes need no files)",
                _TREES[self.name],
            )
        path = Path(root).expanduser()
        if not path.is_dir():
            origin = "root=" if self.given else "the environment variable VITLAB_DATA, which"
            raise VitlabError(f"there is no folder {path}; correct {origin} names it")
        return path


def _scenes(
    place: _Place,
    train: int = 10_000,
    test: int = 2_000,
    size: Size | None = None,
    seed: int = 0,
    objects: int = 4,
    cues: Literal["free", "agree", "conflict"] = "free",
) -> DataSet:
    """Procedural pictures of textured shapes, 25 classes; nothing to download."""
    frame = size or place.image_size or 32

    def draw(count: int, start: int) -> ImageArray:
        drawn = scenes.draw_scenes(count, frame, seed, start, objects, cues=cues)
        return ImageArray(drawn.images, drawn.labels.clone(), scenes.CLASSES, scenes.MEAN, scenes.STD)

    return join("scenes", draw(train, 0), draw(test, _TEST_SCENES))


def _cifar10(place: _Place) -> DataSet:
    """CIFAR-10, 50,000 + 10,000 images of 32×32, 10 classes."""
    return cifar.open_cifar10(place.root)


def _cifar100(place: _Place, labels: Literal["fine", "coarse"] = "fine") -> DataSet:
    """CIFAR-100, 50,000 + 10,000 images of 32×32, 100 classes (or 20, with labels='coarse')."""
    return cifar.open_cifar100(place.root, labels)


def _cifar10c(place: _Place, corruption: str, severity: int | None = None) -> DataSet:
    """CIFAR-10-C, one corruption of CIFAR-10's test images at one severity, or at all five."""
    return cifar.open_corrupted(place.root, "cifar10", corruption, severity)


def _cifar100c(place: _Place, corruption: str, severity: int | None = None) -> DataSet:
    """CIFAR-100-C, one corruption of CIFAR-100's test images at one severity, or at all five."""
    return cifar.open_corrupted(place.root, "cifar100", corruption, severity)


def _imagenet(place: _Place, path: str | None = None, full: bool = True) -> DataSet:
    """ImageNet-1K, 1,281,167 + 50,000 images, 1,000 classes."""
    if path is not None:
        return imagenet.open_imagenet(_path(place, path), full)
    for folder in [place.root / name for name in _IMAGENETS]:
        if folder.is_dir():
            return imagenet.open_imagenet(folder, full)
    if any((place.root / name).is_dir() for name in ("val", imagenet.wordnet_ids()[0])):
        return imagenet.open_imagenet(place.root, full)
    looked = ", ".join(_IMAGENETS)
    raise folders.wrong_layout(f"no ImageNet-1K in {place.root} (looked for {looked})", _TREES["imagenet"])


def _folder(
    place: _Place,
    path: str,
    holdout: float | None = None,
    seed: int = 0,
    mean: Channels = IMAGENET_DEFAULT_MEAN,
    std: Channels = IMAGENET_DEFAULT_STD,
) -> DataSet:
    """Any folder of images with one folder for each class."""
    return folders.open_folder(_path(place, path), holdout, seed, _channels("mean", mean), _channels("std", std))


_NARROWING = ("classes", "fraction", "seed")

_OPENERS: dict[str, Callable[..., DataSet]] = {
    "scenes": _scenes,
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "cifar10c": _cifar10c,
    "cifar100c": _cifar100c,
    "imagenet": _imagenet,
    "folder": _folder,
}

_TREES = {
    "cifar10": cifar.CIFAR10.tree,
    "cifar100": cifar.CIFAR100.tree,
    "cifar10c": "  ROOT/CIFAR-10-C/{labels.npy, fog.npy, …}",
    "cifar100c": "  ROOT/CIFAR-100-C/{labels.npy, fog.npy, …}",
    "imagenet": imagenet.TREE.replace("ROOT/", "ROOT/imagenet/"),
    "folder": folders.TREE,
}


def _own_settings(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Those settings that the opener itself takes, once all are known and none is missing."""
    _, *parameters = inspect.signature(_OPENERS[name]).parameters.values()
    allowed = {parameter.name: parameter.default is parameter.empty for parameter in parameters}
    for key in settings:
        if key not in (*allowed, *_NARROWING):
            raise unknown(f"setting of {name}", key, dict.fromkeys((*allowed, *_NARROWING)))
    for key, required in allowed.items():
        if required and key not in settings:
            raise VitlabError(f"{name} needs {key}; write {name}({key}='…')")
    return {key: settings[key] for key in allowed if key in settings}


def _path(place: _Place, path: str) -> Path:
    """A path as it stands, from here, or below the root."""
    if not isinstance(path, str) or not path:
        raise VitlabError(f"path={path!r}: give the path of a folder, in quotes")
    here = Path(path).expanduser()
    absolute = here.is_absolute() or PureWindowsPath(path).is_absolute()
    if here.is_dir() or absolute or not (place.given or os.environ.get("VITLAB_DATA")):
        return here
    return place.root / here


def _channels(key: str, value: Any) -> Channels:
    if not isinstance(value, list | tuple) or len(value) != 3 or not all(isinstance(v, int | float) for v in value):
        raise VitlabError(f"{key}={value!r}: give three numbers, for red, green and blue")
    return float(value[0]), float(value[1]), float(value[2])
