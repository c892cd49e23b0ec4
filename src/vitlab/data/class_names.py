"""Readable class names: ImageNet's WordNet ids in words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from timm.data import ImageNetInfo

from vitlab.data.imagenet import wordnet_ids


def output_names(outputs: int, classes: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns names for the outputs of a classifier: the classes of its data, ImageNet's 1,000, or numbers.

    Args:
        outputs: number of outputs.
        classes: class names of the data; used if their number matches.

    >>> output_names(2, ("cat", "dog"))
    ('cat', 'dog')
    >>> output_names(1000)[281], output_names(3)[2]
    ('tabby', 'class 2')
    """
    if len(classes) == outputs and tuple(classes) != wordnet_ids():
        return tuple(classes)
    return _imagenet() if outputs == 1000 else tuple(f"class {i}" for i in range(outputs))


@cache
def _imagenet() -> tuple[str, ...]:
    """Returns the first word of each of the 1,000 classes; two words where the first is ambiguous."""
    info = ImageNetInfo("imagenet-1k")
    words = [info.label_name_to_description(name).split(", ") for name in wordnet_ids()]
    first = [synonyms[0] for synonyms in words]
    return tuple(
        name if first.count(name) == 1 else ", ".join(synonyms[:2]) for name, synonyms in zip(first, words, strict=True)
    )
