"""Tables of the papers as pictures: the published cells in their order, each with our number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from vitlab.core.experiment import Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.experiments.catalogue import Experiment
from vitlab.reporting.svg.number_table import Cell, Row, number_table

__all__ = ["Ours", "draw_table", "mean_of"]

#: Returns our number of an arm; None if it was not run.
Ours = Callable[[Results, str], float | None]


def mean_of(kind: str, value: str | Callable[[Measurement], float], unit: float = 1.0) -> Ours:
    """Returns the function that reads a number of an arm, the mean over its runs, in a unit.

    Args:
        kind: the procedure.
        value: the name of the value, or a function of the measurement.
        unit: the number is divided by it.
    """

    def ours(results: Results, arm: str) -> float | None:
        found = results.by_seed(arm, kind, value)
        return float(np.mean(list(found.values()))) / unit if found else None

    return ours


def draw_table(
    experiment: Experiment,
    results: Results,
    scale: Scale,
    rows: Mapping[str, tuple[str, tuple[str, ...]]],
    labels: Sequence[str],
    columns: Mapping[str, tuple[Ours, str]],
    notes: Sequence[str] = (),
    transposed: bool = False,
) -> str:
    """Returns the picture of a table.

    Args:
        experiment: the experiment; its published numbers are the paper's.
        results: the measurements.
        scale: of the results.
        rows: the row of each published number -> its arm, and what its label columns say.
        labels: headings of the label columns.
        columns: column of the published numbers -> our number, and its format.
        notes: lines below the table.
        transposed: whether rows of the picture are columns of the published numbers, and columns are rows.
    """
    printed = {(each.row, each.column): each.value for each in experiment.published}
    if transposed:
        printed = {(column, row): value for (row, column), value in printed.items()}
    drawn = []
    for row, (arm, words) in rows.items():
        cells = []
        for column, (ours, form) in columns.items():
            paper, own = printed.get((row, column)), ours(results, arm)
            cells.append(Cell("" if paper is None else f"{paper:{form}}", "" if own is None else f"{own:{form}}"))
        drawn.append(Row(words, tuple(cells)))
    return number_table(experiment.title, f"Scale {scale}.", labels, list(columns), drawn, notes)
