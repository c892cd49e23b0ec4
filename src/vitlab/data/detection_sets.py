"""Detection data by expression: `scenes(train=2000, labels='shape')`, `coco`, `coco('/data/coco')`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from vitlab.core.errors import VitlabError
from vitlab.data.catalogue import Location, Size, coco_folder, read_expression
from vitlab.data.coco import open_coco
from vitlab.data.detection import DetectionData
from vitlab.data.scene_detection import open_scene_objects

__all__ = ["detection_folder", "open_detection"]


def open_detection(expression: str, *, root: str | Path | None = None, image_size: Size | None = None) -> DetectionData:
    """Open the detection data of an expression.

    Args:
        expression: `scenes` or `coco`, with or without settings; their settings are those of `open_data`.
        root: the folder that contains `coco`; default: the environment variable VITLAB_DATA.
        image_size: side or (height, width) of generated scenes, unless the expression sets `size`.

    >>> data = open_detection("scenes(train=5, test=2, labels='shape')", image_size=32)
    >>> data.classes[:2], data.test[0].size
    (('circle', 'square'), (32, 32))
    """
    name, settings = read_expression(expression)
    for setting in ("classes", "fraction"):
        if setting in settings:
            raise VitlabError(f"{expression!r} cannot be narrowed by {setting}= for detection; omit it")
    if name == "scenes":
        return replace(_scenes(settings, image_size or 32), name=expression.strip())
    if name == "coco":
        settings.pop("path", None)
        return replace(open_coco(detection_folder(expression, root), **settings), name=expression.strip())
    raise VitlabError(f"{name} has no boxes and masks of objects; detection data is: scenes, coco")


def detection_folder(expression: str, root: str | Path | None = None) -> Path:
    """Returns the folder of a `coco` expression.

    >>> detection_folder("coco('/data/coco')").as_posix()
    '/data/coco'
    """
    name, settings = read_expression(expression)
    return coco_folder(Location(name, root, None), settings.get("path"))


def _scenes(settings: dict[str, Any], image_size: Size) -> DetectionData:
    defaults = {"train": 10_000, "test": 2_000, "size": image_size}
    return open_scene_objects(**{**defaults, **{key: value for key, value in settings.items() if value is not None}})
