"""A path that a user gives."""

from __future__ import annotations

import os
from pathlib import Path

from vitlab.core.errors import VitlabError


def user_path(given: str | os.PathLike[str]) -> Path:
    """Returns a path with `~` expanded; raises an error for one that the system cannot look up.

    >>> user_path("photos").as_posix()
    'photos'
    >>> user_path("a" * 5000)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    vitlab.core.errors.VitlabError: invalid path ... (5,002 characters) (File name too long)
    """
    try:
        path = Path(given).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long, not permitted; no home of that user; a null byte
        raise VitlabError(f"invalid path {os.fspath(given)!r} ({getattr(error, 'strerror', error)})") from None
    return path
