"""Per-image correctness of the same images in several sets, collected set by set.

Shape legend: n images, S sets.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vitlab.stress_tests.shared.file_evaluation import ClassifierSetup, file_provenance


@dataclass(frozen=True)
class Correctness:
    """Per-image correctness: one row per set, one column per image that any set contains.

    Args:
        test_name: the name of the stress test.
        rows: by set, the columns of its images and their values.
        columns: by image, its column. The name of an image is the same in all sets.
        broken: paths of unreadable images.
        lacking: classes that a set lacks.
        fingerprints: the fingerprints of the sets.

    >>> correctness = Correctness("test")
    >>> correctness.add("fog", [b"a", b"b"], np.array([1.0, 0.0]))
    >>> correctness.add("snow", [b"b"], np.array([1.0]))
    >>> correctness.table(["fog", "snow", "frost"]).tolist()
    [[1.0, 0.0], [nan, 1.0], [nan, nan]]
    """

    test_name: str
    rows: dict[Hashable, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    columns: dict[Any, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    lacking: set[str] = field(default_factory=set)
    fingerprints: list[str] = field(default_factory=list)

    def add(
        self,
        key: Hashable,
        names: Iterable[Any],
        correct: np.ndarray,
        broken: Sequence[str] = (),
        lacking: Iterable[str] = (),
        fingerprint: str = "",
    ) -> None:
        """Add the values (n,) of the images of one set, NaN for unreadable images."""
        columns = [self.columns.setdefault(name, len(self.columns)) for name in names]
        self.rows[key] = np.array(columns, dtype=np.int64), correct
        self.broken.extend(broken)
        self.lacking.update(lacking)
        self.fingerprints.append(fingerprint)

    def table(self, keys: Sequence[Hashable]) -> np.ndarray:
        """Returns (S, n) values of these sets, NaN where a set lacks an image or is missing."""
        table = np.full((len(keys), len(self.columns)), np.nan)
        for row, key in enumerate(keys):
            if key in self.rows:
                columns, correct = self.rows[key]
                table[row, columns] = correct
        return table

    def counts(self) -> dict[str, int]:
        """Returns the number of readable images of each set."""
        return {_text(key): int((~np.isnan(correct)).sum()) for key, (_, correct) in self.rows.items()}

    def provenance(
        self, setup: ClassifierSetup, keys: Sequence[Hashable], classes: Sequence[str], partial: bool, **extra: Any
    ) -> dict[str, Any]:
        """Returns the provenance: what was read, what is broken and what is missing.

        Args:
            setup: the classifier.
            keys: the requested sets.
            classes: all classes of a complete set.
            partial: see `file_provenance`.
            extra: further entries.
        """
        absent = [_text(key) for key in keys if key not in self.rows]
        missing = {"sets": absent, "classes": [name for name in classes if name in self.lacking]}
        data = " ".join([self.test_name, *dict.fromkeys(self.fingerprints)])
        extra = {"images_by_set": self.counts(), **extra}
        return file_provenance(setup, data, len(self.columns), self.broken, missing, partial, **extra)


def _text(key: Hashable) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)
