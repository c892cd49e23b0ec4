"""Which files a folder holds, as a fingerprint: it changes when some come, go, or grow."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path


def folder_fingerprint(folder: Path, besides: Path | None = None) -> str:
    """A digest of the names and sizes of all files below a folder; reads no file, so it takes seconds for a million.

    Args:
        folder: links to folders are followed, each once.
        besides: a folder to leave out: where results are written, if that is below.

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
        if here in seen:  # left out, or a link that leads back
            folders.clear()
            continue
        seen.add(here)
        folders.sort()
        for name in sorted(files):
            path = os.path.join(at, name)
            size = os.path.getsize(path) if os.path.exists(path) else -1  # a link to nowhere
            digest.update(os.fsencode(f"{os.path.relpath(path, folder)}\0{size}\0"))
    return digest.hexdigest()
