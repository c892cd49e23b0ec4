"""Names of classes as people read them: ImageNet's WordNet ids in words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from timm.data import ImageNetInfo

from vitlab.data.imagenet import wordnet_ids


def output_names(outputs: int, classes: Sequence[str] = ()) -> tuple[str, ...]:
    """What to call the outputs of a classifier: by the classes of its data, as ImageNet's 1,000, or by number.

    Args:
        outputs: how many there are.
        classes: names of the classes of the data; taken where there are as many.

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
    """The first of the words that each of the 1,000 classes has; those that would share it keep two."""
    info = ImageNetInfo("imagenet-1k")
    words = [info.label_name_to_description(name).split(", ") for name in wordnet_ids()]
    first = [all_of[0] for all_of in words]
    return tuple(
        name if first.count(name) == 1 else ", ".join(all_of[:2]) for name, all_of in zip(first, words, strict=True)
    )
