"""Read and validate an annotation file of the COCO format (`instances_*.json`)."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from vitlab.core.errors import VitlabError
from vitlab.data.run_lengths import uncompressed

__all__ = ["AnnotatedFile", "Annotations", "read_annotations"]


@dataclass(frozen=True)
class AnnotatedFile:
    """An image file and its objects.

    Args:
        file: name, relative to the folder of the images.
        size: height and width.
        objects: JSON text of the list of objects: label, bbox (x, y, width, height), segmentation, area, iscrowd.
        trainable: whether it has an object that is not a crowd.
    """

    file: str
    size: tuple[int, int]
    objects: bytes
    trainable: bool


@dataclass(frozen=True)
class Annotations:
    """All images of an annotation file, and the names of its categories in the order of their ids."""

    images: tuple[AnnotatedFile, ...]
    classes: tuple[str, ...]


def read_annotations(file: Path) -> Annotations:
    """Read an annotation file.

    Objects with an empty box or mask are dropped, and boxes that reach beyond the image are clipped; one warning each
    counts them. All other defects are an error that names the entry.
    """
    content = _content(file)
    categories = _by_id(content["categories"], file, "category", {"name": str})
    labels = {number: label for label, number in enumerate(sorted(categories), start=1)}
    images = _by_id(content["images"], file, "image", {"file_name": str, "height": int, "width": int})
    objects: dict[Any, list[dict[str, Any]]] = {number: [] for number in images}
    dropped: list[Any] = []
    clipped: list[Any] = []
    for at, entry in _entries(content["annotations"], file, "annotation"):
        image = _with_id(images, entry.get("image_id"))
        if image is None:
            raise VitlabError(f"{file}: {at} has image_id={entry.get('image_id')!r}; no image has this id")
        if _with_id(categories, entry.get("category_id")) is None:
            known = ", ".join(str(number) for number in sorted(categories)[:5])
            raise VitlabError(
                f"{file}: {at} has category_id={entry.get('category_id')!r}, which is not in categories"
                f" (ids {known}{', …' if len(categories) > 5 else ''})"
            )
        found = _object(entry, image, labels[entry["category_id"]], f"{file}: {at}")
        if found is None:
            dropped.append(entry.get("id"))
        else:
            objects[entry["image_id"]].append(found)
            if _beyond(entry["bbox"], image) > _ROUNDING:
                clipped.append(entry.get("id"))
    if clipped:
        warnings.warn(
            f"{file}: clipped {len(clipped):,} of {len(content['annotations']):,} boxes that reach beyond their image"
            f" (the first has id {clipped[0]})",
            stacklevel=3,
        )
    if dropped:
        warnings.warn(
            f"{file}: dropped {len(dropped):,} of {len(content['annotations']):,} objects with an empty box or mask"
            f" (the first has id {dropped[0]})",
            stacklevel=3,
        )
    return Annotations(
        tuple(
            AnnotatedFile(
                image["file_name"],
                (image["height"], image["width"]),
                json.dumps(objects[number], separators=(",", ":")).encode(),
                any(not each["iscrowd"] for each in objects[number]),
            )
            for number, image in images.items()
        ),
        tuple(categories[number]["name"] for number in sorted(categories)),
    )


def _content(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise VitlabError(f"{file} is not valid JSON ({error}); expected annotations in the COCO format") from None
    for name in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(name), list):
            raise VitlabError(f"{file} has no list {name!r}; expected annotations in the COCO format")
    if not content["images"] or not content["categories"]:
        empty = "images" if not content["images"] else "categories"
        raise VitlabError(f"{file} has no {empty}; expected at least one")
    return dict(content)


def _entries(entries: list[Any], file: Path, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields a description of each entry, for errors, and the entry."""
    for place, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise VitlabError(f"{file}: {kind} {place} is {entry!r}; expected names and values")
        yield f"{kind} with id {entry['id']}" if "id" in entry else f"{kind} {place} of the list", entry


def _by_id(entries: list[Any], file: Path, kind: str, fields: dict[str, type]) -> dict[int, dict[str, Any]]:
    """Returns entries by id, after validation of the id and of the fields."""
    found: dict[int, dict[str, Any]] = {}
    for at, entry in _entries(entries, file, kind):
        for name, expected in {"id": int, **fields}.items():
            value = entry.get(name)
            valid = isinstance(value, expected) and not isinstance(value, bool)
            if not valid or (name in ("height", "width") and entry[name] < 1):
                raise VitlabError(f"{file}: {at} has {name}={value!r}; expected {_WORDS[expected]}")
        if entry["id"] in found:
            raise VitlabError(f"{file}: more than one {kind} has id {entry['id']}; expected different ids")
        path = PurePosixPath(entry.get("file_name", ""))
        if path.is_absolute() or ".." in path.parts:
            raise VitlabError(f"{file}: {at} has file_name={str(path)!r}; expected a path inside the folder of images")
        found[entry["id"]] = entry
    return found


def _with_id(entries: dict[int, dict[str, Any]], number: Any) -> dict[str, Any] | None:
    return entries.get(number) if isinstance(number, int) else None


#: Boxes may reach beyond their image by this many pixels without a warning: COCO's own are rounded.
_ROUNDING = 1.0

#: Largest coordinate of a polygon: the memory for its mask grows with its length, also outside of the image.
_FARTHEST = 100_000

_WORDS = {int: "a positive integer", str: "a text"}


def _object(entry: dict[str, Any], image: dict[str, Any], label: int, at: str) -> dict[str, Any] | None:
    """Returns the stored form of an annotation; None if its box or mask is empty."""
    box, segmentation = entry.get("bbox"), entry.get("segmentation")
    if not isinstance(box, list) or len(box) != 4 or not all(map(_finite, box)):
        raise VitlabError(f"{at} has bbox={box!r}; expected four numbers: x, y, width, height")
    if isinstance(segmentation, list):
        segmentation = _polygons(segmentation, image, at)
    elif isinstance(segmentation, dict):
        segmentation = _runs(segmentation, image, at)
    else:
        raise VitlabError(f"{at} has segmentation={segmentation!r}; expected polygons or run lengths")
    if min(box[2:]) <= 0 or not segmentation:
        return None
    if _beyond(box, image) > 0:
        box = _clipped(box, image)
    width, height = box[2:]
    if width <= 0 or height <= 0:
        return None
    area = entry.get("area", width * height)
    if not _finite(area) or area < 0:
        raise VitlabError(f"{at} has area={area!r}; expected a number from 0")
    crowd = entry.get("iscrowd", 0)
    if not isinstance(crowd, int) or crowd not in (0, 1):
        raise VitlabError(f"{at} has iscrowd={crowd!r}; expected 0 or 1")
    return {"label": label, "bbox": box, "segmentation": segmentation, "area": area, "iscrowd": int(crowd)}


def _beyond(box: list[float], image: dict[str, Any]) -> float:
    """The number of pixels by which a box reaches beyond its image; at most 0 if it is inside."""
    x, y, width, height = box
    return float(max(-x, -y, x + width - image["width"], y + height - image["height"]))


def _clipped(box: list[float], image: dict[str, Any]) -> list[float]:
    """The part of a box inside its image; its width or height is at most 0 if there is none."""
    x, y, width, height = box
    left, top = max(x, 0), max(y, 0)
    return [left, top, min(x + width, image["width"]) - left, min(y + height, image["height"]) - top]


def _polygons(polygons: list[Any], image: dict[str, Any], at: str) -> list[list[float]]:
    """Returns the polygons that have an area and are not outside the image."""
    for polygon in polygons:
        if not isinstance(polygon, list) or len(polygon) % 2 or not all(map(_finite, polygon)):
            raise VitlabError(f"{at} has the polygon {str(polygon)[:60]}; expected a list of x and y in turn")
        if any(abs(each) > _FARTHEST for each in polygon):
            raise VitlabError(f"{at} has the polygon {str(polygon)[:60]}; expected x and y up to {_FARTHEST:,} pixels")
    return [polygon for polygon in polygons if _has_area(polygon) and _meets(polygon, image)]


def _has_area(polygon: list[float]) -> bool:
    """Whether a polygon has three points that are not on one line.

    >>> _has_area([5, 5, 5, 5, 5, 5]), _has_area([0, 0, 1, 1, 2, 2]), _has_area([0, 0, 1, 1, 2, 1])
    (False, False, True)
    """
    points = [(x - polygon[0], y - polygon[1]) for x, y in zip(polygon[2::2], polygon[3::2], strict=True)]
    along = next(((x, y) for x, y in points if x or y), (0, 0))
    return any(along[0] * y != along[1] * x for x, y in points)


def _meets(polygon: list[float], image: dict[str, Any]) -> bool:
    """Whether the bounding box of a polygon meets its image."""
    xs, ys = polygon[::2], polygon[1::2]
    return min(xs) < image["width"] and max(xs) > 0 and min(ys) < image["height"] and max(ys) > 0


def _runs(given: dict[str, Any], image: dict[str, Any], at: str) -> dict[str, Any]:
    """Returns uncompressed run lengths after validation; empty if they have no pixel of the object."""
    size, counts = [image["height"], image["width"]], given.get("counts")
    if given.get("size") != size:
        raise VitlabError(f"{at} has run lengths of size {given.get('size')!r}; expected that of its image, {size}")
    if isinstance(counts, str):
        counts = uncompressed(counts)
    valid = isinstance(counts, list) and all(isinstance(each, int) and each >= 0 for each in counts)
    if not valid or sum(counts or ()) != size[0] * size[1]:
        raise VitlabError(f"{at} has invalid run lengths; expected counts that add up to {size[0] * size[1]} pixels")
    return {"size": size, "counts": counts} if any((counts or [])[1::2]) else {}


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
