"""Parts of a data set: some of its classes, and a fraction of its training images.

Shape legend: N images, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from vitlab.core.errors import VitlabError, unknown
from vitlab.data.images import DataSet, ImageSet, join
from vitlab.data.scene_layout import uniform

_STREAM = 10_000  # of random numbers: none that scenes are drawn from, or a fraction of them would be a biased one


def narrow(
    data: DataSet, classes: int | Sequence[str] | None = None, fraction: float | None = None, seed: int = 0
) -> DataSet:
    """The same data set with some classes only, and a fraction of the training images; all test images stay.

    Args:
        data: what to take from.
        classes: the first so many, or these, in this order; labels are numbered anew from 0.
        fraction: of the training images, in (0, 1].
        seed: which images the fraction holds.
    """
    if not isinstance(seed, int):
        raise VitlabError(f"seed={seed!r}: give an integer")
    train, test = data.train, data.test
    if classes is not None:
        names = _choose(data.classes, classes)
        train, test = None if train is None else take_classes(train, names), take_classes(test, names)
    if fraction is not None:
        train = take_fraction(data.to_train_on() if train is None else train, fraction, seed)
    return join(data.name, train, test)


def take_classes(images: ImageSet, names: Sequence[str]) -> ImageSet:
    """The images of these classes, in the order of the set, with labels 0 … C − 1 in the order of `names`.

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
    """That fraction of each class, in the order of the set."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        raise VitlabError(f"fraction={fraction!r}: give a number above 0 and up to 1, for example 0.02 for 2 %")
    return images.subset(fraction_of_each_class(images.labels, fraction, seed))


def fraction_of_each_class(labels: Tensor, fraction: float, seed: int = 0) -> Tensor:
    """Which images make up a fraction of each class (at least one image); the 2 % lie within the 4 %.

    Image i draws a number that is a function of (seed, i) alone, and each class keeps its lowest: those of a smaller
    fraction are always among those of a larger one.

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
    order = np.lexsort((numbers, kinds))  # class after class, each from its lowest number on
    rank = np.empty(len(kinds), dtype=np.int64)
    rank[order] = np.arange(len(kinds)) - np.repeat(np.cumsum(counts) - counts, counts)
    wanted = np.maximum(1, np.floor(fraction * counts + 0.5))
    return torch.from_numpy(rank < wanted[kinds])


def _choose(names: tuple[str, ...], wanted: int | Sequence[str]) -> Sequence[str]:
    """The names of the classes that are wanted, once they are as they must be."""
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        if not 1 <= wanted <= len(names):
            raise VitlabError(f"classes={wanted}: give a number from 1 to {len(names)}, or a list of names")
        return names[:wanted]
    if not isinstance(wanted, list | tuple) or not wanted:
        raise VitlabError(f"classes={wanted!r}: give a number from 1 to {len(names)}, or a list of names")
    for name in wanted:
        if name not in names:
            raise unknown("class", name, names if len(names) <= 100 else (*names[:5], "…", names[-1]))
    if len(set(wanted)) < len(wanted):
        raise VitlabError(f"classes={wanted!r} names a class twice")
    return wanted
