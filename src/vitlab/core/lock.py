"""A lock on a folder, so that two processes do not write into it at the same time.

The operating system holds the lock for a process and drops it when the process ends, however it ends: the file that a
killed run, or a run on another machine, has left behind locks nothing.
"""

from __future__ import annotations

import json
import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from vitlab.core.errors import VitlabError

try:
    import fcntl
except ImportError:  # Windows has no such locks; there two runs in one folder are not noticed
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made if needed, for this process.

    Raises:
        VitlabError: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    with path.open("a+", encoding="utf-8") as file:
        _take(file, folder)
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "host": platform.node()}))
        file.flush()
        yield  # the file stays: without it two other processes could each hold a lock, on the old file and a new one


def _take(file: TextIO, folder: Path) -> None:
    """Lock a file; unlike a lock of flock, one of lockf is not inherited by workers, which may outlive a killed run."""
    if fcntl is None:
        return
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise VitlabError(f"{folder} is in use by {_holder(file)}; wait until it ends, or give another --out") from None
    except OSError as error:
        warnings.warn(f"{folder} cannot be locked ({error.strerror}); start no second run in it", stacklevel=4)


def _holder(file: TextIO) -> str:
    try:
        file.seek(0)
        found = json.loads(file.read())
        return f"process {found['pid']} on {found['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
