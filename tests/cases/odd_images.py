"""A corpus of odd image files, drawn from a seed: modes, depths, rotations, animations, wrong names, damage.

The pixels that a file shows are known from how it was made, or come from OpenCV's decoder, which shares no code with
Pillow except the codecs.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class OddFile:
    """A file, and the pixels (h, w, 3) that it shows; `none` if it must be refused, `either` if it is damaged.

    A damaged file may be refused. If it is decoded, it must show the same as with OpenCV's decoder.
    """

    kind: str
    path: Path
    pixels: Pixels | None
    tolerance: int = 0
    damaged: bool = False


@dataclass(frozen=True)
class Made:
    """The content of a file before it is written."""

    content: bytes
    suffix: str
    pixels: Pixels | None
    tolerance: int = 0
    damaged: bool = False


Kind = Callable[[np.random.Generator], Made]


def corpus(folder: Path, each: int, seed: int = 0) -> list[OddFile]:
    """Write `each` files of every kind into a folder."""
    files = []
    for number, (name, kind) in enumerate(KINDS.items()):
        for copy in range(each):
            made = kind(np.random.default_rng((seed, number, copy)))
            path = folder / f"{name}-{copy}{made.suffix}"
            path.write_bytes(made.content)
            files.append(OddFile(name, path, made.pixels, made.tolerance, made.damaged))
    return files


def opencv(content: bytes) -> Pixels | None:
    """RGB pixels by OpenCV, without rotation; None if it cannot decode them."""
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    decoded = cv2.imdecode(np.frombuffer(content, np.uint8), flags) if content else None
    return None if decoded is None else np.ascontiguousarray(decoded[:, :, ::-1])


def photo(rng: np.random.Generator, channels: int = 3, size: tuple[int, int] | None = None) -> Pixels:
    """A smooth random picture with a few sharp squares."""
    h, w = size or (int(rng.integers(9, 40)), int(rng.integers(9, 40)))
    coarse = rng.integers(0, 256, (4, 4, channels)).astype(np.uint8)
    picture = np.atleast_3d(cv2.resize(coarse, (w, h), interpolation=cv2.INTER_LINEAR)).copy()
    picture[h // 3 : h // 2, w // 3 : w // 2] = rng.integers(0, 256, channels)
    return picture


def grey(rng: np.random.Generator) -> Pixels:
    return photo(rng, 1)[:, :, 0]


def three(values: NDArray[np.generic]) -> Pixels:
    return np.repeat(values.astype(np.uint8)[:, :, None], 3, axis=2)


def saved(image: Image.Image, kind: str, **settings: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **settings)
    return stream.getvalue()


# -- modes and depths --------------------------------------------------------------------------------------------------


def rgb(kind: str, suffix: str, **settings: object) -> Kind:
    def make(rng: np.random.Generator) -> Made:
        picture = photo(rng)
        return Made(saved(Image.fromarray(picture), kind, **settings), suffix, picture)

    return make


def lossy(kind: str, suffix: str, **settings: object) -> Kind:
    def make(rng: np.random.Generator) -> Made:
        content = saved(Image.fromarray(photo(rng)), kind, **settings)
        return Made(content, suffix, opencv(content), tolerance=3)

    return make


def grey_png(rng: np.random.Generator) -> Made:
    values = grey(rng)
    return Made(saved(Image.fromarray(values), "PNG"), ".png", three(values))


def black_and_white(rng: np.random.Generator) -> Made:
    values = grey(rng) > 127
    return Made(saved(Image.fromarray(values), "PNG"), ".png", three(255 * values))


def few_bits(rng: np.random.Generator) -> Made:
    """A grey PNG of 2 or 4 bits, written by hand."""
    bits = int(rng.choice([2, 4]))
    values = grey(rng)[:, :8] >> (8 - bits)
    shifts = range(8 - bits, -1, -bits)
    per = 8 // bits
    rows = b"".join(
        b"\0" + bytes(sum(int(v) << s for v, s in zip(row[i : i + per], shifts, strict=True)) for i in range(0, 8, per))
        for row in values
    )
    return Made(png(8, len(values), bits, 0, rows), ".png", three(np.rint(values * (255 / (2**bits - 1)))))


def deep_rgb(rng: np.random.Generator) -> Made:
    """An RGB PNG of 16 bits per channel."""
    values = photo(rng).astype(np.uint16) * 257
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return Made(png(values.shape[1], len(values), 16, 2, rows), ".png", (values // 257).astype(np.uint8), tolerance=1)


def deep_grey_alpha(rng: np.random.Generator) -> Made:
    values = np.stack((grey(rng),) * 2, -1).astype(np.uint16) * 257
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return Made(png(values.shape[1], len(values), 16, 4, rows), ".png", three(values[:, :, 0] // 257), tolerance=1)


def png(width: int, height: int, bits: int, colour: int, rows: bytes) -> bytes:
    """A PNG file from its header and its raw rows, each with its filter byte."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def integers(dtype: str, factor: int, kind: str, suffix: str) -> Kind:
    def make(rng: np.random.Generator) -> Made:
        values = grey(rng)
        values[0, :2] = (0, 255)  # the whole range is used
        return Made(saved(Image.fromarray(values.astype(dtype) * factor), kind), suffix, three(values), tolerance=1)

    return make


def big_endian_tiff(rng: np.random.Generator) -> Made:
    values = grey(rng)
    h, w = values.shape
    data = (values.astype(np.uint16) * 257).astype(">u2").tobytes()
    tags = [(256, 3, w), (257, 3, h), (258, 3, 16), (259, 3, 1), (262, 3, 1), (273, 4, 8), (277, 3, 1), (278, 3, h)]
    tags.append((279, 4, len(data)))
    entries = b"".join(
        struct.pack(">HHI", tag, kind, 1) + (struct.pack(">HH", v, 0) if kind == 3 else struct.pack(">I", v))
        for tag, kind, v in tags
    )
    content = b"MM\0*" + struct.pack(">I", 8 + len(data)) + data + struct.pack(">H", len(tags)) + entries + b"\0" * 4
    return Made(content, ".tif", three(values), tolerance=1)


def floats(scale: float) -> Kind:
    def make(rng: np.random.Generator) -> Made:
        values = grey(rng)
        values[0, 0] = 255
        image = Image.fromarray((values * np.float32(scale / 255)).astype(np.float32))
        return Made(saved(image, "TIFF"), ".tiff", three(values), tolerance=1)

    return make


def palette(rng: np.random.Generator) -> Made:
    """A palette PNG; one entry is transparent, and its colour is shown."""
    colours = rng.integers(0, 256, (16, 3)).astype(np.uint8)
    index = rng.integers(0, 16, (11, 13)).astype(np.uint8)
    image = Image.fromarray(index)
    image.putpalette(colours.flatten().tolist())
    return Made(saved(image, "PNG", transparency=int(rng.integers(16))), ".png", colours[index])


def with_alpha(kind: str, suffix: str, **settings: object) -> Kind:
    """Alpha is ignored, as by all decoders to RGB."""

    def make(rng: np.random.Generator) -> Made:
        picture = photo(rng, 4)
        return Made(saved(Image.fromarray(picture), kind, **settings), suffix, picture[:, :, :3])

    return make


def grey_alpha(rng: np.random.Generator) -> Made:
    values = grey(rng)
    pair = Image.fromarray(np.stack((values, rng.permutation(values.flatten()).reshape(values.shape)), -1), "LA")
    return Made(saved(pair, "PNG"), ".png", three(values))


def cmyk_tiff(rng: np.random.Generator) -> Made:
    """RGB = (255 − ink)(255 − black) / 255."""
    inks = photo(rng, 4)
    bright = 255.0 - inks
    shown = np.rint(bright[:, :, :3] * bright[:, :, 3:] / 255).astype(np.uint8)
    return Made(saved(Image.fromarray(inks, "CMYK"), "TIFF"), ".tif", shown, tolerance=2)


def cmyk_jpeg(rng: np.random.Generator) -> Made:
    content = saved(Image.fromarray(photo(rng, 4), "CMYK"), "JPEG", quality=95)
    return Made(content, ".jpg", opencv(content), tolerance=6)


def profile(rng: np.random.Generator) -> Made:
    """Pixels with a colour profile are not converted."""
    picture = photo(rng)
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return Made(saved(Image.fromarray(picture), "PNG", icc_profile=icc), ".png", picture)


# -- rotations and animations ------------------------------------------------------------------------------------------

#: What the viewer does for each EXIF orientation (EXIF 2.3, tag 274).
UPRIGHT: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.transpose(1, 0, 2),
    6: lambda x: np.rot90(x, -1),
    7: lambda x: np.rot90(x, 2).transpose(1, 0, 2),
    8: lambda x: np.rot90(x, 1),
}


def rotated(kind: str, suffix: str, tolerance: int, **settings: object) -> Kind:
    def make(rng: np.random.Generator) -> Made:
        orientation = int(rng.integers(1, 9))
        picture = photo(rng)
        exif = Image.Exif()
        exif[274] = orientation
        content = saved(Image.fromarray(picture), kind, exif=exif, **settings)
        stored = picture if tolerance == 0 else opencv(content)
        assert stored is not None
        return Made(content, suffix, np.ascontiguousarray(UPRIGHT[orientation](stored)), tolerance)

    return make


def wrong_orientation(rng: np.random.Generator) -> Made:
    """An orientation that does not exist: no rotation."""
    picture = photo(rng)
    exif = Image.Exif()
    exif[274] = int(rng.integers(9, 99))
    return Made(saved(Image.fromarray(picture), "PNG", exif=exif), ".png", picture)


def animated(kind: str, suffix: str, **settings: object) -> Kind:
    """The first frame is shown."""

    def make(rng: np.random.Generator) -> Made:
        size = (int(rng.integers(9, 30)), int(rng.integers(9, 30)))
        values = [rng.integers(0, 8, size).astype(np.uint8) for _ in range(3)]
        colours = rng.integers(0, 256, (8, 3)).astype(np.uint8)
        frames = [Image.fromarray(colours[each]) for each in values]
        content = saved(frames[0], kind, save_all=True, append_images=frames[1:], **settings)
        return Made(content, suffix, colours[values[0]])

    return make


# -- sizes, names and damage -------------------------------------------------------------------------------------------


def sized(height: int, width: int, kind: str, suffix: str) -> Kind:
    def make(rng: np.random.Generator) -> Made:
        picture = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
        return Made(saved(Image.fromarray(picture), kind), suffix, picture)

    return make


def garbage(content: Callable[[np.random.Generator], bytes], suffix: str) -> Kind:
    return lambda rng: Made(content(rng), suffix, None)


def cut(kind: str, suffix: str, **settings: object) -> Kind:
    """The first part of a file, of 5 to 90 %."""

    def make(rng: np.random.Generator) -> Made:
        content = saved(Image.fromarray(photo(rng, size=(40, 40))), kind, **settings)
        content = content[: int(len(content) * rng.uniform(0.05, 0.9))]
        return Made(content, suffix, None)

    return make


def flipped(kind: str, suffix: str, **settings: object) -> Kind:
    """A file with flipped bits after its header."""

    def make(rng: np.random.Generator) -> Made:
        content = bytearray(saved(Image.fromarray(photo(rng, size=(40, 40))), kind, **settings))
        for place in rng.integers(len(content) // 3, len(content), 6):
            content[place] ^= 1 << int(rng.integers(8))
        return Made(bytes(content), suffix, opencv(bytes(content)), tolerance=3, damaged=True)

    return make


def broken_exif(rng: np.random.Generator) -> Made:
    """A JPEG with EXIF data that cannot be read; its pixels are intact."""
    content = saved(Image.fromarray(photo(rng)), "JPEG", exif=b"Exif\0\0" + rng.bytes(20))
    return Made(content, ".jpg", opencv(content), tolerance=3)


KINDS: dict[str, Kind] = {
    "png": rgb("PNG", ".png"),
    "interlaced": rgb("PNG", ".png", interlace=1),
    "bmp": rgb("BMP", ".bmp"),
    "ppm": rgb("PPM", ".ppm"),
    "tiff": rgb("TIFF", ".tiff"),
    "tiff-lzw": rgb("TIFF", ".tif", compression="tiff_lzw"),
    "webp-lossless": rgb("WEBP", ".webp", lossless=True),
    "jpeg": lossy("JPEG", ".jpg"),
    "jpeg-progressive": lossy("JPEG", ".jpeg", progressive=True),
    "jpeg-worst": lossy("JPEG", ".JPG", quality=1),
    "webp": lossy("WEBP", ".webp"),
    "grey": grey_png,
    "black-and-white": black_and_white,
    "few-bits": few_bits,
    "rgb16": deep_rgb,
    "grey-alpha16": deep_grey_alpha,
    "grey16": integers("uint16", 257, "PNG", ".png"),
    "grey16-tiff": integers("uint16", 257, "TIFF", ".tif"),
    "grey16-big-endian": big_endian_tiff,
    "int32": integers("int32", 257, "TIFF", ".tiff"),
    "float-1": floats(1.0),
    "float-255": floats(255.0),
    "palette": palette,
    "rgba": with_alpha("PNG", ".png"),
    "rgba-webp": with_alpha("WEBP", ".webp", lossless=True, exact=True),
    "grey-alpha": grey_alpha,
    "cmyk": cmyk_tiff,
    "cmyk-jpeg": cmyk_jpeg,
    "icc": profile,
    "exif-png": rotated("PNG", ".png", 0),
    "exif-jpeg": rotated("JPEG", ".jpg", 3),
    "exif-webp": rotated("WEBP", ".webp", 0, lossless=True),
    "exif-unknown": wrong_orientation,
    "exif-broken": broken_exif,
    "gif": animated("GIF", ".gif"),
    "webp-animated": animated("WEBP", ".webp", lossless=True),
    "apng": animated("PNG", ".png"),
    "one-pixel": sized(1, 1, "PNG", ".png"),
    "one-row": sized(1, 5000, "PNG", ".png"),
    "one-column": sized(5000, 1, "BMP", ".bmp"),
    "png-named-jpg": rgb("PNG", ".jpg"),
    "bmp-named-png": rgb("BMP", ".png"),
    "empty": garbage(lambda rng: b"", ".png"),
    "text": garbage(lambda rng: b"<html>" + rng.bytes(40).hex().encode(), ".jpg"),
    "noise": garbage(lambda rng: rng.bytes(500), ".png"),
    "header-only": garbage(lambda rng: b"\x89PNG\r\n\x1a\n", ".png"),
    "cut-png": cut("PNG", ".png"),
    "cut-jpeg": cut("JPEG", ".jpg"),
    "cut-bmp": cut("BMP", ".bmp"),
    "cut-gif": cut("GIF", ".gif"),
    "cut-tiff": cut("TIFF", ".tif"),
    "cut-webp": cut("WEBP", ".webp", lossless=True),
    "flipped-png": flipped("PNG", ".png"),
    "flipped-jpeg": flipped("JPEG", ".jpg"),
    "flipped-bmp": flipped("BMP", ".bmp"),
    "flipped-webp": flipped("WEBP", ".webp"),
}
