"""A flipped bit or a truncated file raises an error when it is loaded, or has no effect."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from vitlab.core.checksum import measurement_checksum
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.step_cache import step, step_cache
from vitlab.core.store import read_about, read_tensors, write_tensors

FLIPS = 200
ABOUT = {"model": "timm/x", "weights": "ab" * 8, "classes": ["cat", "dög"], "compiled": False}


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    names = ("blocks.0.weight", "blocks.1.weight", "head.bias")
    return {name: torch.randn(7, 5, generator=generator) for name in names}


def measurement() -> Measurement:
    values = {"mean": np.linspace(0, 1, 6).reshape(2, 3), "mean_error": np.full((2, 3), 0.1), "n": np.array(3)}
    dims = {"mean": ("layer", "head"), "mean_error": ("layer", "head"), "n": ()}
    about = {"identity": "0123456789abcdef", "time": "2026-01-01", "images": 64, "model": {"name": "a", "weights": "f"}}
    axes = {"layer": ("block 1", "block 2")}
    return Measurement("k", "a", values, dims, axes, {"tau": 0.5, "on": True}, about, {"mean": "mean_error"})


@dataclass(frozen=True)
class Kind:
    """A kind of file: how it is written, and read as something that can be compared."""

    write: Callable[[Path], Path]
    read: Callable[[Path], Any]


def write_tensor_file(folder: Path) -> Path:
    write_tensors(folder / "model.safetensors", tensors(), ABOUT)
    return folder / "model.safetensors"


def read_bits(path: Path) -> Any:
    found, about = read_tensors(path)
    return about, {name: (tensor.dtype, tensor.numpy().tobytes()) for name, tensor in found.items()}


def write_step(folder: Path) -> Path:
    with step_cache(folder):
        step("one", 1, lambda: dict(measurement().values))
    (path,) = folder.glob("*.npz")
    return path


def read_step(path: Path) -> Any:
    """The cached arrays; a step that must be computed again is an error here."""

    def absent() -> dict[str, np.ndarray]:
        raise VitlabError("computed again")

    with step_cache(path.parent):
        return {name: (value.dtype, value.tobytes()) for name, value in step("one", 1, absent).items()}


KINDS = {
    "tensors": Kind(write_tensor_file, read_bits),
    "metadata": Kind(write_tensor_file, read_about),
    "measurement JSON": Kind(lambda folder: measurement().save(folder / "m"), Measurement.load),
    "measurement npz": Kind(
        lambda folder: measurement().save(folder / "m").with_suffix(".npz"),
        lambda path: Measurement.load(path.with_suffix(".json")),
    ),
    "step": Kind(write_step, read_step),
}


def silent_changes(kind: Kind, path: Path, contents: list[bytes]) -> tuple[int, int]:
    """The numbers of damaged contents that raise and that load equal; all others fail the test."""
    expected, noticed, equal = kind.read(path), 0, 0
    for content in contents:
        path.write_bytes(content)
        try:
            found = kind.read(path)
        except VitlabError as error:
            assert "\n" not in str(error)
            noticed += 1
        else:
            assert found == expected
            equal += 1
    return noticed, equal


def flipped(data: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


@pytest.mark.parametrize("name", KINDS)
def test_flipped_bits_are_detected(name: str, tmp_path: Path) -> None:
    path = KINDS[name].write(tmp_path)
    data, choose = path.read_bytes(), random.Random(0)
    contents = [flipped(data, choose.randrange(len(data)), choose.randrange(8)) for _ in range(FLIPS)]
    noticed, equal = silent_changes(KINDS[name], path, contents)
    print(f"{name}: {FLIPS} flips, {noticed} noticed, {equal} without effect")
    # Only a name of the checksum itself, parts of the zip format that are not read, and tensors where only the
    # metadata is read, may change without effect.
    assert noticed + equal == FLIPS and noticed > 0
    if name == "tensors":
        assert equal <= FLIPS // 10


@pytest.mark.parametrize("name", KINDS)
def test_truncated_files_are_not_loaded(name: str, tmp_path: Path) -> None:
    path = KINDS[name].write(tmp_path)
    data, choose = path.read_bytes(), random.Random(1)
    contents = [data[: choose.randrange(len(data))] for _ in range(50)]
    assert silent_changes(KINDS[name], path, contents) == (50, 0)


def test_the_checksums_are_those_of_the_bytes(tmp_path: Path) -> None:
    path = write_tensor_file(tmp_path)
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    with safe_open(path, "pt") as file:
        stored = file.metadata()
    assert start % 8 == 0
    assert stored["vitlab_tensors_sha256"] == hashlib.sha256(data[start:]).hexdigest()
    blank = data[8:start].replace(stored["vitlab_header_sha256"].encode(), b"0" * 64)
    assert stored["vitlab_header_sha256"] == hashlib.sha256(blank).hexdigest()
    assert json.loads(stored["vitlab"]) == ABOUT
    assert load_file(path).keys() == tensors().keys()


def test_the_same_tensors_give_the_same_file(tmp_path: Path) -> None:
    """safetensors writes several entries of metadata in random order; a repeated run must give the same bytes."""
    for i in range(8):
        write_tensors(tmp_path / str(i), tensors(), ABOUT)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_metadata_with_the_text_of_an_unset_checksum_is_written_and_read(tmp_path: Path) -> None:
    about = {"model": "0" * 64, "note": '"vitlab_header_sha256":"' + "0" * 64 + '"'}
    write_tensors(tmp_path / "a", tensors(), about)
    assert read_tensors(tmp_path / "a")[1] == read_about(tmp_path / "a") == about


def test_damage_is_a_one_line_error_with_the_file_and_the_remedy(tmp_path: Path) -> None:
    path = write_tensor_file(tmp_path)
    path.write_bytes(flipped(path.read_bytes(), -3, 0))
    with pytest.raises(VitlabError, match=r"model.safetensors is damaged .*checksum.*; restore it from a copy"):
        read_tensors(path)
    assert read_about(path) == ABOUT  # its header is intact, and tensors are not read
    about = measurement().save(tmp_path / "m")
    about.write_text(about.read_text().replace("0.5", "0.7"))
    with pytest.raises(VitlabError, match=r"m.json and m.npz .*damaged .*checksum.*; measure again, or restore both"):
        Measurement.load(about)


def test_files_without_a_checksum_are_loaded(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "foreign", metadata={"vitlab": json.dumps(ABOUT)})
    assert read_bits(tmp_path / "foreign") == read_bits(write_tensor_file(tmp_path))
    about = measurement().save(tmp_path / "m")
    text = json.loads(about.read_text())
    assert text.pop("checksum") == measurement_checksum(text, about.with_suffix(".npz").read_bytes())
    about.write_text(json.dumps(text))
    assert Measurement.load(about) == measurement()


def test_arrays_of_another_measurement_raise(tmp_path: Path) -> None:
    """A process that is killed between its two files leaves new arrays beside the old JSON."""
    about = measurement().save(tmp_path / "m")
    other = {name: value + 1 for name, value in measurement().values.items()}
    replace(measurement(), values=other).save(tmp_path / "other")
    about.with_suffix(".npz").write_bytes((tmp_path / "other.npz").read_bytes())
    with pytest.raises(VitlabError, match="checksum"):
        Measurement.load(about)
