"""Subsets of a data set: some of its classes, and a fraction of its training images.

Shape legend: N images, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from vitlab.core.errors import VitlabError, unknown
from vitlab.data.images import DataSet, ImageSet, from_splits
from vitlab.data.scene_layout import uniform

_STREAM = 10_000  # of random numbers, not used by scenes: otherwise a fraction of scenes would be biased


def narrow(
    data: DataSet, classes: int | Sequence[str] | None = None, fraction: float | None = None, seed: int = 0
) -> DataSet:
    """Returns the data set restricted to some classes and a fraction of the training images; all test images are kept.

    Args:
        data: the data set.
        classes: the first N, or a list of names in this order; labels are renumbered from 0.
        fraction: of the training images, in (0, 1].
        seed: selects the images of the fraction.
    """
    if not isinstance(seed, int):
        raise VitlabError(f"invalid seed={seed!r}; expected an integer")
    train, test = data.train, data.test
    if classes is not None:
        names = _choose(data.classes, classes)
        train, test = None if train is None else take_classes(train, names), take_classes(test, names)
    if fraction is not None:
        train = take_fraction(data.to_train_on() if train is None else train, fraction, seed)
    return from_splits(data.name, train, test)


def take_classes(images: ImageSet, names: Sequence[str]) -> ImageSet:
    """Returns the images of these classes, in the order of the set, with labels 0 … C − 1 in the order of `names`.

    >>> from vitlab.data.images import ImageArray
    >>> three = ImageArray(torch.zeros(3, 3, 1, 1, dtype=torch.uint8), torch.tensor([0, 1, 2]), ("ant", "bee", "cow"))
    >>> take_classes(three, ["cow", "ant"]).labels
    tensor([1, 0])
    """
    table = torch.full((len(images.classes),), -1)
    for label, name in enumerate(names):
        table[images.classes.index(name)] = label
    kept = images.subset((table[images.labels] >= 0).nonzero()[:, 0])
    return replace(kept, labels=table[kept.labels], classes=tuple(names))


def take_fraction(images: ImageSet, fraction: float, seed: int = 0) -> ImageSet:
    """Returns a fraction of each class, in the order of the set."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        raise VitlabError(f"invalid fraction={fraction!r}; expected a number above 0 and up to 1, such as 0.02")
    return images.subset(fraction_of_each_class(images.labels, fraction, seed))


def fraction_of_each_class(labels: Tensor, fraction: float, seed: int = 0) -> Tensor:
    """Select a fraction of each class (at least one image); a smaller fraction is a subset of a larger one.

    Image i has a random number that is a function of (seed, i) alone, and each class keeps the lowest numbers.

    Args:
        labels: (N,) int64.
        fraction: above 0 and up to 1.
        seed: any integer.

    Returns:
        (N,) bool.

    >>> labels = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
    >>> labels[fraction_of_each_class(labels, 0.4)].bincount()
    tensor([2, 2])
    """
    kinds = labels.numpy()
    numbers = uniform(seed, np.arange(len(kinds), dtype=np.uint64), [_STREAM], 1)[:, 0, 0]
    counts = np.bincount(kinds)
    order = np.lexsort((numbers, kinds))  # by class, then by number
    rank = np.empty(len(kinds), dtype=np.int64)
    rank[order] = np.arange(len(kinds)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept_counts = np.maximum(1, np.floor(fraction * counts + 0.5))
    return torch.from_numpy(rank < kept_counts[kinds])


def _choose(names: tuple[str, ...], requested: int | Sequence[str]) -> Sequence[str]:
    """Returns the names of the requested classes, after validation."""
    if isinstance(requested, int) and not isinstance(requested, bool):
        if not 1 <= requested <= len(names):
            raise VitlabError(f"invalid classes={requested}; expected 1 to {len(names)}, or a list of names")
        return names[:requested]
    if not isinstance(requested, list | tuple) or not requested:
        raise VitlabError(f"invalid classes={requested!r}; expected 1 to {len(names)}, or a list of names")
    for name in requested:
        if name not in names:
            raise unknown("class", name, names if len(names) <= 100 else (*names[:5], "…", names[-1]))
    if len(set(requested)) < len(requested):
        raise VitlabError(f"invalid classes={requested!r}; expected each class once")
    return requested
