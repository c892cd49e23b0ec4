"""The pictures to look at: some of a data set, and those that are dropped on the page, which may be anything."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from PIL import Image, ImageOps, UnidentifiedImageError

from vitlab.core.errors import VitlabError
from vitlab.data.decoding import open_rgb
from vitlab.data.images import ImageSet

MAX_BYTES = 10 * 1024 * 1024
MAX_PIXELS = 20_000_000
MAX_UPLOADS = 32
_MIN_SIDE, _MAX_RATIO = 8, 8  # a picture of 1 × 20,000,000 would grow to gigabytes when its shorter side is resized
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")


def read_upload(data: bytes) -> Image.Image:
    """The picture that some bytes hold, upright and in RGB; of a moving one the first frame.

    Its size is known from its header and checked before a pixel is decoded.
    """
    if len(data) > MAX_BYTES:
        raise VitlabError(f"this file has more than {MAX_BYTES // 2**20} MB; give a smaller one")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=_FORMATS) as picture:
                width, height = picture.size
                _check_size(width, height)
                picture.verify()
            return open_rgb(io.BytesIO(data), _FORMATS)
    except VitlabError:
        raise
    except Image.DecompressionBombError:
        raise VitlabError(f"this picture has more than {MAX_PIXELS // 10**6} megapixels; give a smaller one") from None
    except UnidentifiedImageError:
        raise VitlabError(f"this file is no picture that can be read; give one of {', '.join(_FORMATS)}") from None
    except Exception:  # PIL's readers raise nearly anything on damaged bytes
        raise VitlabError("this picture is damaged or cut off, and cannot be read to its end") from None


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise VitlabError(
            f"this picture has {width} × {height} pixels; give one with at most {MAX_PIXELS // 10**6} megapixels"
        )
    if min(width, height) < _MIN_SIDE or max(width, height) > _MAX_RATIO * min(width, height):
        raise VitlabError(
            f"this picture has {width} × {height} pixels; its sides should have at least {_MIN_SIDE}, "
            f"and one at most {_MAX_RATIO} times the other"
        )


@dataclass
class ImageCollection:
    """Pictures by name: `0`, `1`, … of a data set, and `u1`, `u2`, … that were dropped on the page.

    Args:
        images: the pictures of the data set.
        name_of: what to call a label.
    """

    images: ImageSet
    name_of: Callable[[int], str]
    _uploads: dict[str, Image.Image] = field(default_factory=dict)
    _count: int = 0

    def names(self) -> list[str]:
        """Those of the data set, in order."""
        return [str(i) for i in range(len(self.images))]

    def picture(self, name: str) -> Image.Image:
        """The picture of that name."""
        if name in self._uploads:
            return self._uploads[name]
        return self.images[self._index(name)][0]

    def label(self, name: str) -> str | None:
        """What it shows, where that is known."""
        if name in self._uploads:
            return None
        label = self.images[self._index(name)][1]
        return self.name_of(label) if label >= 0 else None

    def key(self, name: str) -> int:
        """The index of the picture, by which the noise on it is drawn."""
        return 0 if name in self._uploads else self._index(name)

    def add(self, data: bytes) -> str:
        """Keep the picture that some bytes hold, in memory, and name it; the oldest goes when there are too many."""
        picture = read_upload(data)
        self._count += 1
        name = f"u{self._count}"
        self._uploads[name] = picture
        if len(self._uploads) > MAX_UPLOADS:
            del self._uploads[next(iter(self._uploads))]
        return name

    def thumbnail(self, name: str, side: int = 96) -> bytes:
        """The picture as a small JPEG."""
        small = ImageOps.fit(self.picture(name), (side, side))
        file = io.BytesIO()
        small.save(file, "JPEG", quality=85)
        return file.getvalue()

    def _index(self, name: str) -> int:
        # isdecimal alone would let other scripts' digits through, and a number of any length
        if not (name.isascii() and name.isdecimal() and len(name) < 10 and int(name) < len(self.images)):
            raise VitlabError(f"there is no picture {name[:20]!r} any more; choose another one")
        return int(name)
