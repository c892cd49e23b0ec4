"""Fingerprints of the files that jobs read: data sets, weights and the files of stress tests.

Generated data has the version of its generator. Data sets that are files are opened, which imports torch; their images
are not decoded. The fingerprint of a file does not depend on its place.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vitlab.core.code_version import code_version
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import ModelExpression, parse_model
from vitlab.core.recipe import stored_recipe
from vitlab.core.store import read_about
from vitlab.core.user_path import user_path

__all__ = [
    "MISSING",
    "clear_cache",
    "data_fingerprint",
    "files_fingerprint",
    "libraries",
    "trained_on",
    "weights_digests",
]

#: Stands for data that is not found. No fingerprint equals it, and a job on missing data stores no result.
MISSING = "missing"

#: Data sets without files, and the modules that generate them for each task.
_GENERATED = {
    "scenes": ("vitlab.data.detection_sets", "vitlab.data.segmentation_sets"),
    "scene_questions": ("vitlab.data.question_catalogue",),
}

#: Data sets that are found only below the root: without one they are missing, which needs no import of torch.
_BELOW_ROOT = (
    "cifar10",
    "cifar100",
    "cifar10c",
    "cifar100c",
    "imagenet",
    "coco",
    "camvid",
    "ade20k",
    "cityscapes",
    "acdc",
)

#: The libraries that declare the preprocessing of models, by source.
_LIBRARIES = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers"}

#: Files of a set whose sizes and contents enter its fingerprint, at even distances.
_FILES = 1000

#: Bytes that are read at the beginning and at the end of each of these files. Images that differ in a place compress to
#: files that differ from there on, in size or up to the end.
_READ = 1 << 15


@cache
def data_fingerprint(expression: str, root: str) -> str:
    """Returns a digest of the images and labels that a data expression names; `MISSING` if they cannot be opened.

    Args:
        expression: a data expression, with or without `{root}`.
        root: the folder of the data sets; empty for none.

    >>> data_fingerprint("cifar100", "/no/such/folder")
    'missing'
    """
    root = root or os.environ.get("VITLAB_DATA", "")
    text = expression.replace("{root}", root) if root else expression
    name = text.partition("(")[0].strip()
    if name in _GENERATED:
        return _digest(map(code_version, _GENERATED[name]))
    if not root and text in _BELOW_ROOT:
        return MISSING
    try:
        return _digest(_opened(text, name, root or None))
    except (VitlabError, OSError):
        return MISSING
    except Exception as error:  # damaged files raise many types of exceptions
        raise VitlabError(f"cannot read the data {text!r} ({error}); correct the files or --root") from error


def _opened(text: str, name: str, root: str | None) -> Iterator[str]:
    """Texts that identify the images and labels of a data set."""
    from vitlab.data.catalogue import open_data
    from vitlab.data.detection_sets import detection_folder
    from vitlab.data.question_catalogue import question_folders, question_sets
    from vitlab.data.segmentation_sets import open_pairs
    from vitlab.inputs.pairs import only_pairs

    if name in question_sets():
        yield from map(_tree, question_folders(text, root))
        return
    if name == "coco":  # annotations of hundreds of megabytes, which are slow to read
        yield _tree(detection_folder(text, root))
        return
    data: Any = (open_pairs if only_pairs(text) else open_data)(text, root=root)
    for part in (data.train, data.test):
        yield "" if part is None else f"{len(part)} {part.fingerprint} {_contents_of(part)}"


def _contents_of(images: Any) -> str:
    """A digest of the sizes and contents of some files of a set, which its own fingerprint leaves out."""
    if not hasattr(images, "files"):
        return ""
    chosen = range(0, len(images), max(1, len(images) // _FILES))
    return _digest(_ends(path) for index in chosen for path in images.files(index))


def _ends(path: Path) -> str:
    """The size of a file and a digest of its first and last bytes; a word for a file that does not exist."""
    if not path.is_file():
        return MISSING
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(_READ)
        file.seek(max(len(first), size - _READ))
        return f"{size} {blake2b(first + file.read(), digest_size=8).hexdigest()}"


@cache
def files_fingerprint(module: str, root: str) -> str:
    """Returns a digest of the files below the root that a stress test on files reads; `MISSING` without them.

    Args:
        module: of the stress test. Its `FOLDERS` are the places below the root; without them, or if none exists, all
            files below the root count.
        root: the folder of the data sets; empty for none.
    """
    folder = user_path(root or os.environ.get("VITLAB_DATA", MISSING))
    if not folder.is_dir():
        return MISSING
    places = getattr(importlib.import_module(module.partition(":")[0]), "FOLDERS", ())
    found = [place for place in places if (folder / place).exists()]
    return _digest(f"{place} {_tree(folder / place)}" for place in found or ["."])


def _tree(path: Path) -> str:
    from vitlab.data.file_fingerprints import folder_fingerprint

    return folder_fingerprint(path) if path.is_dir() else _file_digest(path)


# -- weights --------------------------------------------------------------------------------------------------------


def weights_digests(value: Any) -> list[str]:
    """Returns the digests of the files that model expressions name, also in nested ones, where they exist.

    Args:
        value: a model expression, or settings that contain model expressions or paths (`weights=`).
    """
    return [digest for path in _paths(value) for digest in _contents(path)]


def _paths(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, each in sorted(value.items()):
            yield from _paths(each, name)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _paths(each, key)
    elif isinstance(value, str):
        parsed = None if key == "weights" else _parsed(value)
        if parsed is None:
            yield from [value] if key == "weights" or "/" in value or os.sep in value else []
        else:
            yield from [parsed.name] if parsed.source in ("file", "hf") else []
            yield from _paths([parsed.settings, *(part.settings for part in parsed.parts)])


def _parsed(text: str) -> ModelExpression | None:
    try:
        return parse_model(text)
    except VitlabError:
        return None


def _contents(text: str) -> list[str]:
    """The digest of a file, or of each file in a folder of weights."""
    place = os.path.expanduser(text)
    if os.path.isfile(place):
        return [_file_digest(Path(place))]
    if not os.path.isdir(place):
        return []
    files = sorted(file for file in Path(place).iterdir() if file.is_file() and file.name != ".lock")
    return [f"{file.name} {_file_digest(file)}" for file in files]


def _file_digest(path: Path) -> str:
    about = path.stat()
    return _digest_of(path, about.st_size, about.st_mtime_ns)


@cache
def _digest_of(path: Path, size: int, time: int) -> str:
    digest = blake2b(digest_size=8)
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def trained_on(model: str) -> str:
    """The data expression of the recipe that is stored in the weights of a model expression; empty without one."""
    parsed = _parsed(model)
    file = None if parsed is None else parsed.name if parsed.source == "file" else parsed.settings.get("weights")
    if not isinstance(file, str):
        return ""
    place = Path(os.path.expanduser(file))
    place = place / "model.safetensors" if os.path.isdir(place) else place
    if place.suffix != ".safetensors" or not os.path.isfile(place):
        return ""
    try:
        recipe = read_about(place).get("recipe")
        return stored_recipe(recipe).data if recipe else ""
    except VitlabError:  # a damaged file, which loading reports
        return ""


def libraries(model: str) -> dict[str, str]:
    """The versions of the libraries that build a model and declare its preprocessing.

    >>> list(libraries("vitlab/upernet(backbone='timm/deit_tiny_patch16_224')")), libraries("vitlab/fan_tiny")
    (['timm'], {})
    """
    return {name: _version(name) for name in sorted({_LIBRARIES[each] for each in _sources(model)})}


def _sources(text: Any) -> Iterator[str]:
    parsed = _parsed(text) if isinstance(text, str) else None
    if parsed is not None:
        yield from [parsed.source] if parsed.source in _LIBRARIES else []
        for value in parsed.settings.values():
            yield from _sources(value)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return MISSING


def clear_cache() -> None:
    """Read data again at the next request: files may have changed since."""
    data_fingerprint.cache_clear()
    files_fingerprint.cache_clear()


def _digest(texts: Iterable[str]) -> str:
    return blake2b("\0".join(texts).encode(), digest_size=8).hexdigest()
