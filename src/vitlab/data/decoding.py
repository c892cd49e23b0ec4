"""Open image files of any mode as upright 8-bit RGB, and label files with unchanged values.

Pillow's own conversion clips: 16-bit grey becomes white, floats in [0, 1] become black. Values are scaled here instead.

Shape legend: h w pixels.
"""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from vitlab.core.errors import VitlabError

#: Formats that are read: photographs and scans. Pillow would run Ghostscript on EPS under any file name.
FORMATS = ("BMP", "DIB", "GIF", "ICO", "JPEG", "JPEG2000", "PCX", "PNG", "PPM", "TGA", "TIFF", "WEBP")

_PHOTOMETRIC, _WHITE_IS_ZERO = 262, 0  # a tag of TIFF, and its value for scans whose smallest value is white


def open_rgb(source: Path | BinaryIO, formats: tuple[str, ...] = FORMATS, *, enough: int | None = None) -> Image.Image:
    """Open an image in RGB, rotated by its EXIF orientation; the first frame of an animation. Alpha is ignored.

    Args:
        source: a path, or a file open for reading.
        formats: the formats to try, by Pillow's names.
        enough: if given, a JPEG is decoded at 1/2, 1/4 or 1/8 of its size as long as both sides keep this many pixels,
            which saves time and memory.
    """
    try:
        with Image.open(source, formats=formats) as image:
            if enough is not None:
                image.draft(None, (enough, enough))
            image.load()  # before EXIF is read: a second attempt to load damaged pixels raises no error
            return to_rgb(_upright(image))
    except Exception as error:  # Pillow raises many types of exceptions on damaged files
        if not isinstance(source, Path):
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].removesuffix(f" {str(source)!r}")
        raise VitlabError(f"cannot read the image {source} ({reason}); replace the file") from error


def open_labels(path: Path) -> NDArray[np.generic]:
    """Returns the values (h, w) of a label file, such as a segmentation mask; nothing is scaled or rotated."""
    with Image.open(path, formats=FORMATS) as image:
        return np.array(image)


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image to RGB, scaling values of more than 8 bits; warns once per such mode.

    >>> grey = Image.fromarray(np.array([[0, 257, 65535]], dtype=np.uint16))
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     np.array(to_rgb(grey))[0, :, 0]
    array([  0,   1, 255], dtype=uint8)
    """
    if image.mode != "F" and not image.mode.startswith("I"):
        return image.convert("RGB")
    values = np.asarray(image).astype(np.float64)
    low, high = (0.0, 65535.0) if image.mode.startswith("I;16") else value_range(values, image.mode == "F")
    _warn_once(image.mode)
    if getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == _WHITE_IS_ZERO:  # Pillow inverts TIFFs of 8 bits only
        low, high = high, low
    scaled = np.nan_to_num((values - low) / (high - low)).clip(0, 1)
    return Image.fromarray(np.rint(255 * scaled).astype(np.uint8)).convert("RGB")


def value_range(values: NDArray[np.float64], floating: bool) -> tuple[float, float]:
    """Returns the values of black and white: the smallest usual range that contains all values, else their own range.

    Args:
        values: of an image; values that are not finite are ignored.
        floating: whether the image contains floats, for which [0, 1] is usual as well as [0, 255] and [0, 65535].

    >>> value_range(np.array([0.0, 0.5]), floating=True), value_range(np.array([0.0, 300.0]), floating=False)
    ((0.0, 1.0), (0.0, 65535.0))
    >>> value_range(np.array([-2.0, 2.0]), floating=True)
    (-2.0, 2.0)
    """
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    for white in (1.0, 255.0, 65535.0) if floating else (255.0, 65535.0):
        if low >= 0 and high <= white:
            return 0.0, white
    return low, high if high > low else low + 1


@cache
def _warn_once(mode: str) -> None:
    """Warn how images of a mode are converted to 8-bit RGB."""
    how = "from 0 to 65535" if mode.startswith("I;16") else "from the smallest usual range of their values"
    warnings.warn(f"images of mode {mode!r} are scaled to 8 bits {how}; convert them first to avoid this", stacklevel=4)


def _upright(image: Image.Image) -> Image.Image:
    try:
        ImageOps.exif_transpose(image, in_place=True)
    except Exception as error:  # damaged EXIF raises many types of exceptions; the pixels are intact
        warnings.warn(f"the EXIF data of an image cannot be read ({error}); the image is not rotated", stacklevel=4)
    return image
