"""What a long measurement has found so far: finished steps are kept in a folder, and found again after a crash.

A measurement calls `step` for each of its parts and knows nothing of folders or progress bars; who runs it opens a
`ledger` around it, or does not.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.core.store import write_atomically


@dataclass(frozen=True)
class _Ledger:
    folder: Path | None
    watch: Callable[[str, int], None] | None


_NONE = _Ledger(None, None)
_open: ContextVar[_Ledger] = ContextVar("ledger", default=_NONE)


@contextmanager
def ledger(folder: Path | None = None, watch: Callable[[str, int], None] | None = None) -> Iterator[None]:
    """Keep the steps of the measurement inside; a second ledger inside the first takes its place.

    Args:
        folder: where finished steps are kept, of this measurement alone: steps are known by name only. None keeps none.
        watch: called after each step with its name and how many there are in all.
    """
    before = _open.set(_Ledger(folder, watch))
    try:
        yield
    finally:
        _open.reset(before)


def step(name: str, total: int, find: Callable[[], Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
    """One part of a long measurement: what the ledger kept of it, else what `find` finds, kept from now on.

    Args:
        name: of the step, unlike all others of its measurement.
        total: how many steps the measurement has.
        find: does the work; arrays by name.

    >>> step("fog at 3", 75, lambda: {"correct": np.ones(2)})["correct"].tolist()
    [1.0, 1.0]
    """
    now = _open.get()
    path = None if now.folder is None else now.folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.npz"
    found: Mapping[str, np.ndarray] | None = _read(path) if path else None
    if found is None:
        found = find()
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            arrays: dict[str, Any] = {key: np.asarray(value) for key, value in found.items()}
            with write_atomically(path) as file:
                np.savez_compressed(file, **arrays)
    if now.watch:
        now.watch(name, total)
    return found


def _read(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of a finished step; None where the file is missing or damaged: the step is then done again."""
    try:
        with np.load(path, allow_pickle=False) as pack:
            return {name: pack[name] for name in pack.files}
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error):
        return None
