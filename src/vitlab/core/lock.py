"""Lock on a folder, so that two processes do not write into it at the same time.

The operating system releases the lock when the process ends, also when it is killed. A lock file that remains from a
killed run or from another machine therefore has no effect.
"""

from __future__ import annotations

import json
import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import ENOSPC
from io import FileIO
from pathlib import Path

from vitlab.core.errors import VitlabError

try:
    import fcntl
except ImportError:  # not available on Windows, where two runs in one folder are not detected
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; the folder is created if needed.

    Raises:
        VitlabError: if another process has locked it.
    """
    path = folder / NAME
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("a+b", buffering=0))
            _lock(file, folder)
            _write_owner(file)
        except OSError as error:
            advice = "free some space" if error.errno == ENOSPC else "remove it"
            reason = f"{path} cannot be written ({error.strerror})"
            raise VitlabError(f"{reason}; {advice}, or give another --out") from error
        yield  # the file is not removed: else two other processes could lock the old file and a new one


def _write_owner(file: FileIO) -> None:
    """Write this process into its lock file, which is not buffered, so that a full disk is noticed here."""
    if os.fstat(file.fileno()).st_size:
        file.truncate(0)
    file.write(json.dumps({"pid": os.getpid(), "host": platform.node()}).encode())


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Wait until no other process is inside this block for the same folder; for files that belong together.

    The folder itself is locked, so that no file remains. Where folders cannot be locked, there is no wait.
    """
    with ExitStack() as stack:
        if fcntl is not None:
            with suppress(OSError):
                descriptor = os.open(folder, os.O_RDONLY)
                stack.callback(os.close, descriptor)  # releases the lock
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _lock(file: FileIO, folder: Path) -> None:
    """Lock a file with lockf: unlike with flock, workers, which may outlive a killed run, do not inherit the lock."""
    if fcntl is None:
        return
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise VitlabError(f"{folder} is in use by {_owner(file)}; wait until it ends, or give another --out") from None
    except OSError as error:
        warnings.warn(f"{folder} cannot be locked ({error.strerror}); do not start a second run in it", stacklevel=4)


def _owner(file: FileIO) -> str:
    try:
        file.seek(0)
        owner = json.loads(file.read())
        return f"process {owner['pid']} on {owner['host']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
