"""Fingerprints of files by names, sizes and times; no contents are read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

__all__ = ["files_stamp", "folder_fingerprint"]


def folder_fingerprint(folder: Path, besides: Path | None = None, *, times: bool = False) -> str:
    """Returns a digest of the names and sizes of all files below a folder.

    Args:
        folder: the root; links to folders are followed, each once.
        besides: a folder to exclude, such as an output folder below the root.
        times: include the times of the files, so that it changes when a file is replaced by one of the same size.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     empty = folder_fingerprint(Path(folder))
    ...     _ = Path(folder, "cat.jpg").write_bytes(b"12")
    ...     folder_fingerprint(Path(folder)) == empty
    False
    """
    digest = blake2b(digest_size=8)
    seen = {os.path.realpath(besides)} if besides else set()
    for at, folders, files in os.walk(folder, followlinks=True):
        here = os.path.realpath(at)
        if here in seen:  # excluded, or a link to a folder already visited
            folders.clear()
            continue
        seen.add(here)
        folders.sort()
        for name in sorted(files):
            path = os.path.join(at, name)
            size, time = _size_and_time(path)
            digest.update(os.fsencode(f"{os.path.relpath(path, folder)}\0{size}\0" + (f"{time}\0" if times else "")))
    return digest.hexdigest()


def files_stamp(paths: Iterable[str | Path]) -> str:
    """Returns a digest of the sizes and times of files, which changes when a file is replaced.

    >>> files_stamp(["no such file"]) == files_stamp(["nor this"]) != files_stamp([])
    True
    """
    digest = blake2b(digest_size=8)
    for path in paths:
        digest.update("{} {}\n".format(*_size_and_time(path)).encode())
    return digest.hexdigest()


def _size_and_time(path: str | Path) -> tuple[int, int]:
    try:
        about = os.stat(path)
    except OSError:  # missing, or a broken link
        return -1, 0
    return about.st_size, about.st_mtime_ns
