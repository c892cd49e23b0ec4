"""Provenance of a result: versions, platform, command and time."""

from __future__ import annotations

import platform
import shlex
import sys
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from typing import Any


def provenance(**extra: Any) -> dict[str, Any]:
    """Returns versions, platform, command and time, together with the given entries (seed, device, data).

    >>> provenance(seed=3)["seed"]
    3
    """
    from vitlab import __version__

    return {
        "vitlab": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": dict(_versions()),
        "command": shlex.join(sys.argv),
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **extra,
    }


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    """Returns the versions of the installed libraries that affect results."""
    versions = []
    for name in ("torch", "torchvision", "timm", "transformers", "numpy"):
        try:
            versions.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(versions)
