"""What a long measurement has found so far: finished steps are kept in a folder, and found again after a crash.

A measurement calls `step` for each of its parts and knows nothing of folders or progress bars; who runs it opens a
`step_cache` around it, or does not.
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
from typing import Any, Literal

import numpy as np

from vitlab.core.store import write_atomically

#: What becomes of a step: it is found in the step cache, or begun and then done.
State = Literal["kept", "begun", "done"]
ReportProgress = Callable[[str, int | None, State], None]


@dataclass(frozen=True)
class _StepCache:
    folder: Path | None
    report_progress: ReportProgress | None

    def tell(self, name: str, total: int | None, state: State) -> None:
        if self.report_progress:
            self.report_progress(name, total, state)


_NONE = _StepCache(None, None)
_open: ContextVar[_StepCache] = ContextVar("step_cache", default=_NONE)


@contextmanager
def step_cache(folder: Path | None = None, report_progress: ReportProgress | None = None) -> Iterator[None]:
    """Keep the steps of the measurement inside; a second step cache inside the first takes its place.

    Args:
        folder: where finished steps are kept, of this measurement alone: steps are known by name only. None keeps none.
        report_progress: called with the name of a step, the number of steps (None where it is not known), and
            its state.
    """
    before = _open.set(_StepCache(folder, report_progress))
    try:
        yield
    finally:
        _open.reset(before)


def step(name: str, total: int, find: Callable[[], Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
    """One part of a long measurement: what the step cache kept of it, else what `find` finds, kept from now on.

    Args:
        name: of the step, unlike all others of its measurement.
        total: how many steps the measurement has.
        find: does the work; arrays by name.

    >>> step("fog at 3", 75, lambda: {"correct": np.ones(2)})["correct"].tolist()
    [1.0, 1.0]
    """
    now = _open.get()
    path = None if now.folder is None else now.folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.npz"
    kept = _read(path) if path else None
    if kept is not None:
        now.tell(name, total, "kept")
        return kept
    now.tell(name, total, "begun")
    found = find()
    if path:
        _write(path, found)
    now.tell(name, total, "done")
    return found


def passed(name: str, total: int | None) -> None:
    """Tell who watches of a part that is over but not kept, being worth nothing without the others."""
    _open.get().tell(name, total, "done")


def preparing(what: str) -> None:
    """Tell the watcher, if there is one, what is being prepared; preparations are shown and not counted."""
    _open.get().tell(what, None, "begun")


def _write(path: Path, found: Mapping[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {key: np.asarray(value) for key, value in found.items()}
    with write_atomically(path) as file:
        np.savez_compressed(file, **arrays)


def _read(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of a finished step; None where the file is missing or damaged: the step is then done again."""
    try:
        with np.load(path, allow_pickle=False) as pack:
            return {name: pack[name] for name in pack.files}
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error):
        return None
