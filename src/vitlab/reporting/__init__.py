"""Write measurements as one self-contained HTML page. Imports `core` only, and no torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vitlab.core.annotations import shown
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.store import write_atomically
from vitlab.reporting.stored_measurements import read, training_curve

__all__ = ["read", "report", "training_curve"]


def report(
    measurements: Iterable[Measurement], path: str | Path = "report.html", *, title: str = "vitlab report"
) -> Path:
    """Write a self-contained HTML report: no network access, one copy of plotly, every string escaped.

    Args:
        measurements: the measurements to show; the first model is the baseline. Repeats on disjoint parts of the images
            are pooled and other repeats are averaged. Measurements of different weights are never averaged.
        path: the file to write.
        title: the heading of the page.

    Returns:
        The path of the written file.
    """
    from vitlab.reporting.page import render

    given = list(measurements) if isinstance(measurements, Iterable) else [measurements]
    if not given:
        raise VitlabError("nothing to report: no measurements were given; expected at least one")
    for each in given:
        if not isinstance(each, Measurement):
            raise VitlabError(f"report(measurements=[{shown(each)}]): expected measurements, see `Measurement.load`")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as file:
        file.write(render(given, title).encode())
    return path
