"""Draw what was measured: Measurements in, one self-contained HTML page out. Imports core only, and no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.store import write_atomically

__all__ = ["read", "report"]


def report(
    measurements: Iterable[Measurement], path: str | Path = "report.html", *, title: str = "vitlab report"
) -> Path:
    """Write one self-contained page: no network, one copy of plotly, every string escaped.

    Args:
        measurements: what was measured; the first subject of a kind is the baseline of its section.
        path: the page to write.
        title: its heading.

    Returns:
        The path.
    """
    from vitlab.reporting.page import render

    found = list(measurements)
    if not found:
        raise VitlabError("there is nothing to report: no measurements were given")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as file:
        file.write(render(found, title).encode())
    return path


def read(paths: Sequence[str | Path]) -> list[Measurement]:
    """All measurements in some folders or files, by name."""
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            files += sorted(file for file in path.rglob("*.json") if file.with_suffix(".npz").exists())
        else:
            files.append(path)
    if not files:
        raise VitlabError(f"no measurements in {', '.join(map(str, paths))}; `vitlab measure` writes some")
    return [Measurement.load(file) for file in files]
