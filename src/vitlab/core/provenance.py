"""Where a result came from: versions, machine, command, time."""

from __future__ import annotations

import platform
import shlex
import sys
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from typing import Any


def provenance(**extra: Any) -> dict[str, Any]:
    """Versions, platform, command and time, and whatever else is known (seed, device, data).

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
    """Of the libraries that numbers depend on, as far as they are installed."""
    found = []
    for name in ("torch", "torchvision", "timm", "transformers", "numpy"):
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)
