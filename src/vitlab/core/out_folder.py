"""The folder that results are written to: whether it can be written, and what killed processes left in it."""

from __future__ import annotations

import glob
import os
import tempfile
from pathlib import Path

from vitlab.core.errors import VitlabError


def check_writable(folder: str | Path, advice: str = "give another --out") -> None:
    """Raise an error if no files can be written to a folder, or it cannot be created; nothing is left behind.

    Args:
        folder: that is written to later.
        advice: what to do, for the error.
    """
    folder = Path(folder)
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise VitlabError(f"{folder} cannot be written ({error.strerror}); {advice}") from error


def remove_unfinished(path: Path) -> None:
    """Remove temporary files for a path (`store.write_atomically`) whose process has ended."""
    for file in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        process = file.name.split(".")[-2]
        if process.isdigit() and not _is_running(int(process)):
            file.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    if os.name != "posix":  # elsewhere signal 0 would end the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user
        return True
    return True
