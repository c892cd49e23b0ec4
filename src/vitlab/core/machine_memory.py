"""The memory of this machine, and errors for requests that do not fit into it."""

from __future__ import annotations

import os
from pathlib import Path

from vitlab.core.errors import VitlabError

_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container


def machine_memory() -> float:
    """Returns the memory of this machine, or of the container, in bytes; infinite if it is not known."""
    known = [float("inf")]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        known.append(float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES"))
    if _LIMIT.is_file() and (text := _LIMIT.read_text(encoding="ascii").strip()).isdigit():
        known.append(float(text))
    return min(known)


def check_memory(
    what: str, needed: float, available: float | None = None, advice: str = "use smaller settings"
) -> None:
    """Raise an error if more memory is needed than there is.

    Args:
        what: what needs the memory, for the error.
        needed: the estimate in bytes.
        available: in bytes; default the memory of this machine.
        advice: what to do.

    >>> check_memory("a model", 5e12, 64e9)
    Traceback (most recent call last):
    vitlab.core.errors.VitlabError: a model needs about 5.0 TB of memory; there are 64.0 GB; use smaller settings
    """
    there = machine_memory() if available is None else available
    if needed > there:
        raise VitlabError(f"{what} needs about {_amount(needed)} of memory; there are {_amount(there)}; {advice}")


def _amount(size: float) -> str:
    """A number of bytes in words.

    >>> _amount(2e4), _amount(2.5e9), _amount(3e15)
    ('0.02 MB', '2.5 GB', '3,000.0 TB')
    """
    if size < 1e9:
        return f"{size / 1e6:,.2g} MB"
    return f"{size / 1e9:,.1f} GB" if size < 1e12 else f"{size / 1e12:,.1f} TB"
