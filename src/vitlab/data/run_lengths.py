"""Masks as run lengths (RLE) and polygons of the COCO format, by faster-coco-eval.

Shape legend: h w pixels.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitlab.core.errors import VitlabError

__all__ = ["coco_module", "decode_mask", "encode_mask", "uncompressed"]

Mask = NDArray[np.uint8]


def coco_module(name: str) -> Any:
    """Returns a module of faster-coco-eval, such as `core.mask`."""
    try:
        return importlib.import_module(f"faster_coco_eval.{name}")
    except ImportError:
        raise VitlabError("detection needs the extra 'tasks': pip install 'vitlab[tasks]'") from None


def encode_mask(mask: Mask) -> dict[str, Any]:
    """Returns the compressed run lengths of a mask (h, w) of 0 and 1.

    >>> encode_mask(np.eye(2, dtype=np.uint8))["size"]
    [2, 2]
    """
    found = coco_module("core.mask").encode(np.asfortranarray(mask, dtype=np.uint8))
    return {"size": list(found["size"]), "counts": bytes(found["counts"]).decode()}


def decode_mask(segmentation: Any, size: tuple[int, int]) -> Mask:
    """Returns the mask (h, w) of a segmentation: a list of polygons, or run lengths.

    Args:
        segmentation: `[[x0, y0, x1, y1, …], …]`, or `{"size": [h, w], "counts": [background, object, …]}`, by column.
        size: (h, w) of the image.

    >>> decode_mask({"size": [2, 2], "counts": [1, 2, 1]}, (2, 2))
    array([[0, 1],
           [1, 0]], dtype=uint8)
    """
    masks = coco_module("core.mask")
    pieces = masks.frPyObjects(segmentation, *size)
    decoded: Mask = masks.decode(masks.merge(pieces) if isinstance(pieces, list) else pieces)
    return decoded


def uncompressed(text: str) -> list[int] | None:
    """Returns the counts of compressed run lengths; None if the text is invalid.

    Each character holds five bits of a count, the lowest first, and whether another follows; from the fourth count on,
    the difference to the count before the last is stored. The library's own decoder does not check its input.

    >>> uncompressed(encode_mask(np.eye(2, dtype=np.uint8))["counts"])
    [0, 1, 2, 1]
    """
    counts: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64 or shift > 40:
            return None
        value |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            value -= (1 << shift) if bits & 16 else 0
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
            value = shift = 0
    return None if shift else counts
