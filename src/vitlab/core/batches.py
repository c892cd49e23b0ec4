"""Images as a model eats them, and the way back to pixels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Batches:
    """Batches of (images, targets) that can be walked more than once.

    Args:
        items: yields (images, targets); images are float32 exactly as the model eats them.
        mean, std: of the normalisation, per channel: pixels = images * std + mean, in [0, 1].
        classes: names of the classes.
        fingerprint: which data this is, for provenance.
    """

    items: Iterable[Any]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: Sequence[str] = ()
    fingerprint: str = ""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)  # type: ignore[arg-type]
