"""Large photos are scaled down, upright and with the right colours."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from vitlab.explore.images import MAX_SIDE, read_upload


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [
        ("PNG", (6000, 4500), (3072, 4096)),  # 27 megapixels, turned by a quarter
        ("JPEG", (9000, 8400), (3823, 4096)),  # decoded at half its size
        ("JPEG", (640, 480), (480, 640)),
    ],
)
def test_large_photos_are_scaled_down(kind: str, size: tuple[int, int], expected: tuple[int, int]) -> None:
    photo = Image.new("RGB", size, (200, 30, 30))
    photo.paste((30, 30, 200), (0, 0, size[0] // 2, size[1]))  # the left half is blue
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: the left half becomes the upper one
    file = io.BytesIO()
    photo.save(file, kind, exif=exif)
    found = read_upload(file.getvalue())
    assert found.mode == "RGB" and max(found.size) <= MAX_SIDE
    assert all(abs(side - wanted) <= 1 for side, wanted in zip(found.size, expected, strict=True))
    width, height = found.size
    for y, colour in ((0.1, (30, 30, 200)), (0.9, (200, 30, 30))):
        pixel = found.getpixel((width // 2, int(height * y)))
        assert all(abs(value - wanted) < 8 for value, wanted in zip(pixel, colour, strict=True))
