"""Checksums inside files, so that damaged files are noticed when they are loaded.

A safetensors file of vitlab has two in its metadata: that of the tensors, and that of the header, which covers names,
shapes, metadata and the checksum of the tensors. The metadata can therefore be verified without reading the tensors. A
measurement has one, over its JSON and npz files. Files without checksums, of other libraries or of earlier versions,
are not verified.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitlab.core.errors import VitlabError

_HEADER, _TENSORS = "vitlab_header_sha256", "vitlab_tensors_sha256"
_UNSET = "0" * 64  # replaces the header's own checksum while the header is hashed
_CHUNK = 1 << 20


def with_checksums(data: bytes) -> tuple[bytes, memoryview]:
    """Add checksums to the contents of a safetensors file.

    The header is written here, because safetensors writes several entries of metadata in random order.

    Args:
        data: the contents of a file with metadata.

    Returns:
        The bytes before the tensors, and those of the tensors.
    """
    start = 8 + int.from_bytes(data[:8], "little")
    header, tensors = json.loads(data[8:start]), memoryview(data)[start:]
    own = {_HEADER: _UNSET, _TENSORS: hashlib.sha256(tensors).hexdigest()}
    header["__metadata__"] = {**own, **header["__metadata__"]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8 bytes
    text = text.replace(_entry(_UNSET), _entry(hashlib.sha256(text).hexdigest()), 1)
    return len(text).to_bytes(8, "little") + text, tensors


def verify_tensor_file(path: Path, *, tensors: bool) -> None:
    """Compare a valid safetensors file with its checksums; without checksums it is accepted.

    Args:
        path: the file.
        tensors: whether the tensors are verified too, which reads the whole file.
    """
    with path.open("rb") as file:
        text = file.read(int.from_bytes(file.read(8), "little"))
        stored = json.loads(text).get("__metadata__") or {}
        expected = {name: stored[name] for name in (_HEADER, _TENSORS) if name in stored}
        found = dict(expected)
        if _HEADER in expected:
            found[_HEADER] = hashlib.sha256(text.replace(_entry(expected[_HEADER]), _entry(_UNSET), 1)).hexdigest()
        if _TENSORS in expected and tensors:
            digest = hashlib.sha256()
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
            found[_TENSORS] = digest.hexdigest()
    if found != expected:
        raise VitlabError(
            f"{path} is damaged (its contents do not match their checksum); restore it from a copy, or create it again"
        )


def _entry(checksum: str) -> bytes:
    """The header's checksum as it is written in the header."""
    return f'"{_HEADER}":"{checksum}"'.encode()


def measurement_checksum(text: Mapping[str, Any], arrays: bytes) -> str:
    """The SHA-256 of a measurement.

    Args:
        text: the contents of its JSON file; a field `checksum` is omitted.
        arrays: the bytes of its npz file.

    >>> measurement_checksum({"b": 1, "a": 2.0}, b"") == measurement_checksum({"a": 2.0, "b": 1, "checksum": ""}, b"")
    True
    """
    fields = {name: value for name, value in text.items() if name != "checksum"}
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode())
    digest.update(arrays)
    return digest.hexdigest()
