"""Match image files with the files of their label maps."""

from __future__ import annotations

from pathlib import Path

from vitlab.core.errors import VitlabError
from vitlab.data.folders import SUFFIXES, natural

__all__ = ["matched", "renamed"]


def matched(images: Path, labels: Path) -> tuple[tuple[Path, Path], ...]:
    """Each image with the label map of the same name, in natural order."""
    found = _files(images)
    if not found:
        raise VitlabError(f"{images} contains no images")
    maps = _by_name(_files(labels), labels)
    names = list(_by_name(found, images))
    missing = [name for name in names if name not in maps]
    if missing:
        raise VitlabError(
            f"{len(missing)} of {len(found)} images in {images} have no label map of the same name in {labels}, "
            f"for example {missing[0]}"
        )
    return tuple((path, maps[name]) for path, name in zip(found, names, strict=True))


def renamed(images: Path, labels: Path, end: str, label_end: str) -> tuple[tuple[Path, Path], ...]:
    """Each image of a tree with the label map of the same tree whose name ends differently."""
    found = [path for path in _files(images) if path.name.endswith(end)]
    if not found:
        raise VitlabError(f"{images} contains no images *{end}")
    pairs = [
        (path, labels / path.relative_to(images).with_name(path.name.removesuffix(end) + label_end)) for path in found
    ]
    missing = [label for _, label in pairs if not label.is_file()]
    if missing:
        raise VitlabError(f"{len(missing)} of {len(pairs)} images have no label map, for example {missing[0]}")
    return tuple(pairs)


def _by_name(files: list[Path], folder: Path) -> dict[str, Path]:
    """Files by their path in the folder without suffix; raises if two have the same: either could be the right one."""
    found: dict[str, Path] = {}
    for path in files:
        other = found.setdefault(str(path.relative_to(folder).with_suffix("")), path)
        if other != path:
            raise VitlabError(f"{other} and {path.name} have the same name without suffix; remove one of them")
    return found


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise VitlabError(f"no folder {folder}; expected images or label maps in it")
    paths = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    return sorted(paths, key=lambda path: natural(str(path)))
