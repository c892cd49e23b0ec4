"""Batches of images in a model's input format, with the normalisation that converts them back to pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vitlab.core.bounds import ChannelDeviations, ChannelMeans
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card
from vitlab.core.settings import check_value

T = TypeVar("T")


@dataclass(frozen=True)
class Batches:
    """Batches of (images, targets) that can be iterated more than once.

    Args:
        items: yields (images, targets); images are float32 in the model's input format, targets index its outputs.
        mean, std: of the normalisation, per channel: pixels = images * std + mean, in [0, 1].
        classes: names of the classes that targets index.
        fingerprint: identifies the data, for provenance.
        preprocessing: how the images were preprocessed, for provenance.
        labels: how the classes of the data were mapped to the outputs of the model, for provenance.
        no_labels: the reason why targets cannot be used, for the error of instruments that need labels; empty if they
            can be used.
        outputs: for each class of the data, the output of the model; part of the identity of stored measurements.
        count: the number of images; None if it is not known before they are read.
    """

    items: Iterable[Any]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: Sequence[str] = ()
    fingerprint: str = ""
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    labels: str = ""
    no_labels: str = ""
    outputs: Sequence[int] = ()
    count: int | None = None

    def __post_init__(self) -> None:
        """Raise an error if mean or std are not numbers per channel."""
        check_value("Batches", "mean", self.mean, ChannelMeans)
        check_value("Batches", "std", self.std, ChannelDeviations)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)  # type: ignore[arg-type]


def recorded(batches: Any) -> dict[str, Any]:
    """Returns preprocessing and labels of `Batches` for provenance; an empty dict for other iterables."""
    if not isinstance(batches, Batches):
        return {}
    known = {"preprocessing": dict(batches.preprocessing), "labels": batches.labels}
    return {name: value for name, value in known.items() if value}


def require_labels(batches: Any, name: str, card: Card) -> None:
    """Raise an error if an instrument or stress test needs labels and the batches have none that can be used.

    Args:
        batches: `Batches`; other iterables are not checked.
        name: of the instrument or stress test.
        card: of the instrument or stress test.
    """
    if isinstance(batches, Batches) and batches.no_labels and card.needs_labels:
        raise VitlabError(f"{name} needs labels: {batches.no_labels}")


def reiterable(batches: Iterable[Any], read: Callable[[Iterable[Any]], Iterator[T]]) -> Callable[[], Iterable[T]]:
    """Returns a function that iterates over `read(batches)` each time it is called.

    The items of an iterator, which can be iterated only once, are stored in a list. Batches that differ between two
    iterations (shuffled or augmented at random) raise an error: different images would be compared.

    Args:
        batches: `Batches`, or any iterable.
        read: takes the batches and yields items, for example (images, targets).

    >>> iterate = reiterable(iter([1, 2, 3]), lambda batches: (2 * batch for batch in batches))
    >>> list(iterate()), list(iterate())
    ([2, 4, 6], [2, 4, 6])
    """
    items = batches.items if isinstance(batches, Batches) else batches
    if isinstance(items, Iterator):
        stored = list(read(batches))
        return lambda: stored
    if isinstance(items, (list, tuple)):
        return lambda: read(batches)
    first: list[Any] = []

    def iterate() -> Iterator[T]:
        for number, item in enumerate(read(batches)):
            fingerprint = _fingerprint(item)
            first.extend([fingerprint] if number == len(first) else [])
            if fingerprint != first[number]:
                raise VitlabError("batches differ between two iterations (shuffled or augmented); give list(batches)")
            yield item

    return iterate


def _fingerprint(item: Any) -> Any:
    """One number of each image, which detects another order or another crop."""
    images = item[0] if isinstance(item, (tuple, list)) else item
    flat = images.reshape(len(images), -1)
    return flat[:, flat.shape[1] // 2].tolist()
