"""Images in a model's input format, and the way back to pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card

T = TypeVar("T")


@dataclass(frozen=True)
class Batches:
    """Batches of (images, targets) that can be iterated more than once.

    Args:
        items: yields (images, targets); images are float32 in the model's input format, targets index its outputs.
        mean, std: of the normalisation, per channel: pixels = images * std + mean, in [0, 1].
        classes: names of the classes that targets stand for.
        fingerprint: which data this is, for provenance.
        preprocessing: how the images were prepared, for provenance.
        labels: how the data's classes were matched with the model's outputs, for provenance.
        no_labels: why targets cannot be used, where they cannot: instruments that need labels refuse with this.
    """

    items: Iterable[Any]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: Sequence[str] = ()
    fingerprint: str = ""
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    labels: str = ""
    no_labels: str = ""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)  # type: ignore[arg-type]


def recorded(batches: Any) -> dict[str, Any]:
    """Preprocessing and labels of `Batches`, for provenance; nothing of other batches."""
    if not isinstance(batches, Batches):
        return {}
    known = {"preprocessing": dict(batches.preprocessing), "labels": batches.labels}
    return {name: value for name, value in known.items() if value}


def require_labels(batches: Any, name: str, card: Card) -> None:
    """Refuse batches without usable labels where an instrument or stress test needs them.

    Args:
        batches: `Batches`, or anything else, which is left alone.
        name: of the instrument or stress test.
        card: of the instrument or stress test.
    """
    if isinstance(batches, Batches) and batches.no_labels and card.needs_labels:
        raise VitlabError(f"{name} needs labels: {batches.no_labels}")


def again(batches: Iterable[Any], read: Callable[[Iterable[Any]], Iterator[T]]) -> Callable[[], Iterable[T]]:
    """What `read` makes of the batches, each time it is asked: what can be walked only once is read into a list.

    Batches that are shuffled or augmented anew at each walk are refused: what is compared would not be the same images.

    Args:
        batches: `Batches`, or any iterable.
        read: takes the batches and yields (images, targets), or what it likes.

    >>> walk = again(iter([1, 2, 3]), lambda batches: (2 * batch for batch in batches))
    >>> list(walk()), list(walk())
    ([2, 4, 6], [2, 4, 6])
    """
    items = batches.items if isinstance(batches, Batches) else batches
    if isinstance(items, Iterator):
        kept = list(read(batches))
        return lambda: kept
    if isinstance(items, (list, tuple)):
        return lambda: read(batches)
    first: list[Any] = []

    def walk() -> Iterator[T]:
        for number, item in enumerate(read(batches)):
            mark = _mark(item)
            first.extend([mark] if number == len(first) else [])
            if mark != first[number]:
                raise VitlabError("batches are shuffled or augmented anew at each walk; give list(batches)")
            yield item

    return walk


def _mark(item: Any) -> Any:
    """One number of each image: enough to tell another order, or another crop."""
    images = item[0] if isinstance(item, (tuple, list)) else item
    flat = images.reshape(len(images), -1)
    return flat[:, flat.shape[1] // 2].tolist()
