"""The available memory of this machine, and errors for requests that do not fit into it."""

from __future__ import annotations

import os
from pathlib import Path

from vitlab.core.errors import VitlabError

_MACHINE = Path("/proc/meminfo")
_CONTAINER = Path("/sys/fs/cgroup")
_ALLOCATION_FAILED = ("not enough memory", "can't allocate memory", "cannot allocate memory", "out of memory")


def available_memory() -> float:
    """Returns the memory that a new allocation can use, in bytes; infinite if it is not known.

    The smallest of the memory of this machine, what the system reports as available, and what is left to the container.
    """
    known = [float("inf")]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        known.append(float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES"))
    if (kilobytes := _entries(_MACHINE).get("MemAvailable")) is not None:
        known.append(1024.0 * kilobytes)
    limit, used = (_entries(_CONTAINER / name).get("") for name in ("memory.max", "memory.current"))
    if limit is not None:
        cached = _entries(_CONTAINER / "memory.stat").get("file", 0)  # of files, which are dropped when memory is short
        known.append(float(limit - max((used or 0) - cached, 0)))
    return min(known)


def _entries(path: Path) -> dict[str, int]:
    """The numbers in a file of the system by name; the name of a number alone is empty."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):  # another system
        return {}
    words = [line.replace(":", " ").split() for line in lines]
    named = [("", *each) if len(each) == 1 else (each[0], each[1]) for each in words if each]
    return {name: int(number) for name, number in named if number.isdigit()}


def is_allocation_failure(error: BaseException) -> bool:
    """Returns whether an error says that memory could not be allocated, by Python, numpy or torch.

    >>> is_allocation_failure(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
    True
    """
    text = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in text for words in _ALLOCATION_FAILED)
    )


def check_memory(
    what: str, needed: float, available: float | None = None, advice: str = "use smaller settings"
) -> None:
    """Raise an error if more memory is needed than is available.

    Args:
        what: what needs the memory, for the error.
        needed: the estimate in bytes.
        available: in bytes; default that of this machine.
        advice: what to do.

    >>> check_memory("a model", 5e12, 64e9)
    Traceback (most recent call last):
    vitlab.core.errors.VitlabError: a model needs about 5.0 TB of memory; 64.0 GB are available; use smaller settings
    """
    there = available_memory() if available is None else available
    if needed > there:
        raise VitlabError(f"{what} needs about {_amount(needed)} of memory; {_amount(there)} are available; {advice}")


def _amount(size: float) -> str:
    """A number of bytes in words.

    >>> _amount(2e4), _amount(2.5e9), _amount(3e15)
    ('0.02 MB', '2.5 GB', '3,000.0 TB')
    """
    if size < 1e9:
        return f"{size / 1e6:,.2g} MB"
    return f"{size / 1e9:,.1f} GB" if size < 1e12 else f"{size / 1e12:,.1f} TB"
