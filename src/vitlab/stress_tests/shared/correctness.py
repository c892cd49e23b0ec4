"""Marks of the same images in several sets, entered set by set.

Shape legend: n images, S sets.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vitlab.stress_tests.shared.file_evaluation import ClassifierSetup, about


@dataclass(frozen=True)
class Correctness:
    """Who was right where: a row for each set, a column for each image that any of them holds.

    Args:
        kind: the stress test.
        rows: by set, the columns of its images and their marks.
        columns: of each image, by a name that is the same in all sets.
        broken: paths of images that could not be read.
        lacking: classes that a set lacks.
        prints: fingerprints of the sets.

    >>> sheet = Correctness("test")
    >>> sheet.enter("fog", [b"a", b"b"], np.array([1.0, 0.0]))
    >>> sheet.enter("snow", [b"b"], np.array([1.0]))
    >>> sheet.table(["fog", "snow", "frost"]).tolist()
    [[1.0, 0.0], [nan, 1.0], [nan, nan]]
    """

    kind: str
    rows: dict[Hashable, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    columns: dict[Any, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    lacking: set[str] = field(default_factory=set)
    prints: list[str] = field(default_factory=list)

    def enter(
        self,
        place: Hashable,
        names: Iterable[Any],
        marks: np.ndarray,
        broken: Sequence[str] = (),
        lacking: Iterable[str] = (),
        fingerprint: str = "",
    ) -> None:
        """Enter the marks (n,) of one set's images, NaN for those that could not be read."""
        columns = [self.columns.setdefault(name, len(self.columns)) for name in names]
        self.rows[place] = np.array(columns, dtype=np.int64), marks
        self.broken.extend(broken)
        self.lacking.update(lacking)
        self.prints.append(fingerprint)

    def table(self, places: Sequence[Hashable]) -> np.ndarray:
        """(S, n) marks of these sets, NaN where one lacks an image, or is not there at all."""
        table = np.full((len(places), len(self.columns)), np.nan)
        for row, place in enumerate(places):
            if place in self.rows:
                columns, marks = self.rows[place]
                table[row, columns] = marks
        return table

    def counts(self) -> dict[str, int]:
        """How many images of each set could be read."""
        return {_words(place): int((~np.isnan(marks)).sum()) for place, (_, marks) in self.rows.items()}

    def provenance(
        self, who: ClassifierSetup, places: Sequence[Hashable], classes: Sequence[str], partial: bool, **extra: Any
    ) -> dict[str, Any]:
        """What was there and what was not: `places` are the sets that were wanted, `classes` all that a set has."""
        absent = [_words(place) for place in places if place not in self.rows]
        missing = {"sets": absent, "classes": [name for name in classes if name in self.lacking]}
        counts = self.counts()
        data = " ".join([self.kind, *dict.fromkeys(self.prints)])
        told = {"images_by_set": counts, **extra}
        return about(who, data, len(self.columns), self.broken, missing, partial, **told)


def _words(place: Hashable) -> str:
    return " ".join(map(str, place)) if isinstance(place, tuple) else str(place)
