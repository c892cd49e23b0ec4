"""Cache for the steps of a long measurement: finished steps are stored in a folder and reused after a crash.

A measurement calls `step` for each of its steps. The caller may open a `step_cache` around it, which sets the folder
and the progress callback; without one, nothing is stored or reported.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vitlab.core.errors import VitlabError
from vitlab.core.npz import read_npz
from vitlab.core.store import write_atomically

#: The state of a step: read from the cache (kept), started (begun), progress inside it (inside), or finished (done).
State = Literal["kept", "begun", "inside", "done"]
ReportProgress = Callable[[str, int | None, State], None]


@dataclass(frozen=True)
class _StepCache:
    folder: Path | None
    report_progress: ReportProgress | None

    def report(self, name: str, total: int | None, state: State) -> None:
        if self.report_progress:
            self.report_progress(name, total, state)


_CHECKSUM_BYTES = hashlib.sha256().digest_size
_NONE = _StepCache(None, None)
_open: ContextVar[_StepCache] = ContextVar("step_cache", default=_NONE)


@contextmanager
def step_cache(folder: Path | None = None, report_progress: ReportProgress | None = None) -> Iterator[None]:
    """Context in which the steps of a measurement are cached; a nested step cache replaces the outer one.

    Args:
        folder: folder for finished steps of this measurement only, because steps are identified by name; None for no
            caching.
        report_progress: called with the name of a step, the number of steps (None if unknown), and its state.
    """
    before = _open.set(_StepCache(folder, report_progress))
    try:
        yield
    finally:
        _open.reset(before)


def step(name: str, total: int, compute: Callable[[], Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
    """Returns the cached result of a step; computes and caches it if there is none.

    Args:
        name: unique name of the step within its measurement.
        total: number of steps of the measurement.
        compute: computes the step; returns arrays by name.

    >>> step("fog at 3", 75, lambda: {"correct": np.ones(2)})["correct"].tolist()
    [1.0, 1.0]
    """
    cache = _open.get()
    path = None if cache.folder is None else cache.folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.npz"
    cached = _read(path) if path else None
    if cached is not None:
        cache.report(name, total, "kept")
        return cached
    cache.report(name, total, "begun")
    result = compute()
    if path:
        _write(path, result)
    cache.report(name, total, "done")
    return result


def report_done(name: str, total: int | None) -> None:
    """Report a finished step that is not cached, because its result cannot be used without the other steps."""
    _open.get().report(name, total, "done")


def inside(what: str) -> None:
    """Report progress inside the current step, for example the number of iterations; displayed, not counted."""
    _open.get().report(what, None, "inside")


def preparing(what: str) -> None:
    """Report a preparation, which is displayed but not counted as a step."""
    _open.get().report(what, None, "begun")


def _write(path: Path, result: Mapping[str, np.ndarray]) -> None:
    """Write the arrays of a step as npz, followed by their SHA-256."""
    arrays: dict[str, Any] = {key: np.asarray(value) for key, value in result.items()}
    pack = io.BytesIO()
    np.savez_compressed(pack, **arrays)
    for again in (True, False):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with write_atomically(path) as file:
                file.write(pack.getvalue() + hashlib.sha256(pack.getvalue()).digest())
            return
        except VitlabError:  # another process that finished the same measurement has removed the folder
            if path.parent.exists() or not again:
                raise


def _read(path: Path) -> dict[str, np.ndarray] | None:
    """Returns the arrays of a finished step; None if the file is missing or damaged, so that the step is recomputed."""
    try:
        data = path.read_bytes()
        pack, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        return read_npz(io.BytesIO(pack)) if hashlib.sha256(pack).digest() == checksum else None
    except (OSError, VitlabError):
        return None
