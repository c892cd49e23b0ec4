"""Images of any mode become what they show; labels keep their values."""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.core.errors import VitlabError
from vitlab.data import decoding
from vitlab.data.decoding import open_labels, open_rgb
from vitlab.data.images import ImageFiles
from vitlab.data.sequences import frames
from vitlab.explore.images import read_upload

GREYS = np.arange(256, dtype=np.uint8).reshape(16, 16)  # every value of 8 bits, once


@pytest.fixture(autouse=True)
def _warns_anew() -> Iterator[None]:
    decoding._warn_once.cache_clear()
    yield
    decoding._warn_once.cache_clear()


def _save(path: Path, values: np.ndarray) -> Path:
    Image.fromarray(values).save(path)
    return path


KINDS = {
    "uint16.png": GREYS.astype(np.uint16) * 257,
    "uint16.tiff": GREYS.astype(np.uint16) * 257,
    "int32.tiff": GREYS.astype(np.int32) * 257,
    "int32 of 8 bits.tiff": GREYS.astype(np.int32),
    "int32 of any range.tiff": GREYS.astype(np.int32) * 1_000_000 - 5_000_000,
    "float in [0, 1].tiff": (GREYS / np.float32(255)).astype(np.float32),
    "float in [0, 255].tiff": GREYS.astype(np.float32),
}


@pytest.mark.parametrize("name", KINDS)
def test_values_are_scaled_by_their_range(tmp_path: Path, name: str) -> None:
    path = _save(tmp_path / name, KINDS[name])
    with pytest.warns(UserWarning, match="scaled to 8 bits") as caught:
        first, second = open_rgb(path), open_rgb(path)
    assert len(caught) == 1  # one warning for a mode
    for image in (first, second):
        assert image.mode == "RGB"
        assert np.array_equal(np.array(image), np.repeat(GREYS[:, :, None], 3, 2))


@pytest.mark.parametrize("name", ["uint8", "uint16", "float in [0, 1]"])
def test_the_smallest_value_of_a_scan_may_be_white(tmp_path: Path, name: str) -> None:
    """The tag 262 (PhotometricInterpretation) of TIFF is 1 where zero is black, and 0 where it is white."""
    path = _save(tmp_path / "scan.tiff", GREYS if name == "uint8" else KINDS[f"{name}.tiff"])
    black_is_zero = struct.pack("<HHIH", 262, 3, 1, 1)
    content = path.read_bytes()
    assert content.count(black_is_zero) == 1
    path.write_bytes(content.replace(black_is_zero, struct.pack("<HHIH", 262, 3, 1, 0)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shown = np.array(open_rgb(path))
    assert np.array_equal(shown, np.repeat(255 - GREYS[:, :, None], 3, 2))


def test_a_dark_16_bit_image_stays_dark(tmp_path: Path) -> None:
    path = _save(tmp_path / "dark.png", np.full((16, 16), 2570, dtype=np.uint16))
    with pytest.warns(UserWarning, match="from 0 to 65535"):
        assert np.unique(np.array(open_rgb(path))) == [10]


def test_values_that_are_not_finite_are_ignored(tmp_path: Path) -> None:
    values = (GREYS / np.float32(255)).astype(np.float32)
    values[0, :3] = [np.nan, np.inf, -np.inf]
    path = _save(tmp_path / "image.tiff", values)
    with pytest.warns(UserWarning, match="scaled to 8 bits"):
        found = np.array(open_rgb(path))[:, :, 0]
    assert found[0, :3].tolist() == [0, 255, 0] and np.array_equal(found[1:], GREYS[1:])


#: EXIF orientation -> what shows the stored pixels upright (Exif 2.3, Table 6), written with numpy.
UPRIGHT = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.swapaxes(0, 1),
    6: lambda x: np.rot90(x, -1),
    7: lambda x: x[::-1, ::-1].swapaxes(0, 1),
    8: lambda x: np.rot90(x, 1),
}


def _turned(orientation: int) -> tuple[bytes, np.ndarray]:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(file, "PNG", exif=exif)
    return file.getvalue(), UPRIGHT[orientation](pixels)


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_every_reader_applies_exif_rotation(tmp_path: Path, orientation: int) -> None:
    data, expected = _turned(orientation)
    (tmp_path / "image.png").write_bytes(data)
    files = ImageFiles(tmp_path, np.array(["image.png"], dtype="S"), torch.tensor([0]), ("one",))
    found = [open_rgb(tmp_path / "image.png"), files[0][0], *frames(tmp_path), read_upload(data)]
    assert len(found) == 4 and all(np.array_equal(np.array(image), expected) for image in found)


def test_every_reader_scales_16_bits(tmp_path: Path) -> None:
    path = _save(tmp_path / "image.png", KINDS["uint16.png"])
    files = ImageFiles(tmp_path, np.array(["image.png"], dtype="S"), torch.tensor([0]), ("one",))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [files[0][0], *frames(tmp_path), read_upload(path.read_bytes())]
    assert len(found) == 3 and all(np.array_equal(np.array(image)[:, :, 1], GREYS) for image in found)


@pytest.mark.parametrize("values", [GREYS, GREYS.astype(np.uint16) * 3], ids=["8 bits", "16 bits"])
def test_labels_keep_their_values(tmp_path: Path, values: np.ndarray) -> None:
    path = _save(tmp_path / "mask.png", values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(open_labels(path), values)


def test_damaged_exif_does_not_lose_the_image(tmp_path: Path) -> None:
    Image.fromarray(GREYS).save(tmp_path / "image.png", exif=b"Exif\x00\x00XX\x00*")  # Pillow raises on this header
    with pytest.warns(UserWarning, match="EXIF data of an image cannot be read"):
        assert np.array_equal(np.array(open_rgb(tmp_path / "image.png"))[:, :, 0], GREYS)


def test_postscript_is_not_opened(tmp_path: Path) -> None:
    """Pillow would run Ghostscript on it under any file name."""
    path = tmp_path / "photo.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n")
    with Image.open(path) as image:
        assert image.format == "EPS"
    with pytest.raises(VitlabError, match=r"photo\.png \(cannot identify image file\); replace"):
        open_rgb(path)
