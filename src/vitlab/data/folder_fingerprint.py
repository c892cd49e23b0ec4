"""Fingerprint of a folder: changes when files are added, removed or resized."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path


def folder_fingerprint(folder: Path, besides: Path | None = None) -> str:
    """Returns a digest of the names and sizes of all files below a folder; reads no file contents.

    Args:
        folder: the root; links to folders are followed, each once.
        besides: a folder to exclude, such as an output folder below the root.

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
            size = os.path.getsize(path) if os.path.exists(path) else -1  # a broken link
            digest.update(os.fsencode(f"{os.path.relpath(path, folder)}\0{size}\0"))
    return digest.hexdigest()
