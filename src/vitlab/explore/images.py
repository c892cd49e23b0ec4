"""The images of the explorer: some of a data set, and untrusted uploads."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from PIL import Image, ImageOps, UnidentifiedImageError

from vitlab.core.errors import VitlabError
from vitlab.data.decoding import open_rgb
from vitlab.data.images import ImageSet

MAX_BYTES = 50 * 1024 * 1024
MAX_PIXELS = 120_000_000  # larger than the photos of phones; 360 MB while a PNG is decoded
MAX_UPLOADS = 32
MAX_SIDE = 4096  # of a stored image; larger ones are scaled down
_MIN_SIDE, _MAX_RATIO = 8, 8  # an image of 1 × 20,000,000 would need gigabytes after its shorter side is resized
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")


def read_upload(data: bytes) -> Image.Image:
    """Decode an uploaded image as upright RGB, scaled down to at most `MAX_SIDE` per side; of an animation one frame.

    The size in the header is checked before pixels are decoded.
    """
    if len(data) > MAX_BYTES:
        raise VitlabError(f"the file is larger than {MAX_BYTES // 2**20} MB; choose a smaller one")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=_FORMATS) as picture:
                width, height = picture.size
                _check_size(width, height)
                picture.verify()
            image = open_rgb(io.BytesIO(data), _FORMATS, enough=MAX_SIDE)
            image.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
            return image
    except VitlabError:
        raise
    except Image.DecompressionBombError:
        raise VitlabError(f"the image has more than {MAX_PIXELS // 10**6} megapixels; choose a smaller one") from None
    except UnidentifiedImageError:
        raise VitlabError(f"the file is not a supported image; expected one of {', '.join(_FORMATS)}") from None
    except Exception:  # PIL's decoders raise many types of errors on damaged files
        raise VitlabError("the image is damaged or truncated and cannot be decoded") from None


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise VitlabError(f"the image has {width} × {height} pixels; expected at most {MAX_PIXELS // 10**6} megapixels")
    if min(width, height) < _MIN_SIDE or max(width, height) > _MAX_RATIO * min(width, height):
        raise VitlabError(
            f"the image has {width} × {height} pixels; expected at least {_MIN_SIDE} per side and an aspect "
            f"ratio of at most {_MAX_RATIO}"
        )


@dataclass
class ImageCollection:
    """Images by name: `0`, `1`, … of a data set, and `u1`, `u2`, … for uploads.

    Args:
        images: the images of the data set.
        name_of: the name of a label.
    """

    images: ImageSet
    name_of: Callable[[int], str]
    _uploads: dict[str, Image.Image] = field(default_factory=dict)
    _count: int = 0

    def names(self) -> list[str]:
        """The names of all images: the uploads, the latest first, then the images of the data set in order."""
        return [*reversed(self._uploads), *(str(i) for i in range(len(self.images)))]

    def picture(self, name: str) -> Image.Image:
        """The image of that name."""
        if name in self._uploads:
            return self._uploads[name]
        return self.images[self._index(name)][0]

    def label(self, name: str) -> str | None:
        """The name of its class; None if unknown."""
        label = self.label_index(name)
        return None if label is None else self.name_of(label)

    def label_index(self, name: str) -> int | None:
        """The label of an image of the data set; None if unknown."""
        if name in self._uploads:
            return None
        label = self.images[self._index(name)][1]
        return label if label >= 0 else None

    def key(self, name: str) -> int:
        """The index of the image, which seeds the random corruptions."""
        return 0 if name in self._uploads else self._index(name)

    def add(self, data: bytes) -> str:
        """Decode an upload, store it in memory and return its name; above `MAX_UPLOADS` the oldest one is removed."""
        picture = read_upload(data)
        self._count += 1
        name = f"u{self._count}"
        self._uploads[name] = picture
        if len(self._uploads) > MAX_UPLOADS:
            del self._uploads[next(iter(self._uploads))]
        return name

    def thumbnail(self, name: str, side: int = 96) -> bytes:
        """The image as a small JPEG."""
        small = ImageOps.fit(self.picture(name), (side, side))
        file = io.BytesIO()
        small.save(file, "JPEG", quality=85)
        return file.getvalue()

    def _index(self, name: str) -> int:
        # isdecimal alone accepts digits of other scripts and numbers of any length
        if not (name.isascii() and name.isdecimal() and len(name) < 10 and int(name) < len(self.images)):
            raise VitlabError(f"image {name[:20]!r} does not exist or was removed; choose another one")
        return int(name)
