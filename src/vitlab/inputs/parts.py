"""Disjoint parts of a set of images, and how many images they have."""

from __future__ import annotations

from typing import Any

from vitlab.core.errors import VitlabError

#: The default number of images or questions.
DEFAULT_IMAGES = 64


def count_images(requested: int | None, available: int, repeats: int, what: str, default: int | None = None) -> int:
    """Returns the number of images to use; too few are an error only if a number was requested.

    Args:
        requested: the requested number; None for the default.
        available: the number of images of the set.
        repeats: the number of parts.
        what: the set, for errors.
        default: the number without a request; None for all.
    """
    if requested is not None and requested > available:
        raise VitlabError(f"invalid images={requested}; {what} has {available}; request fewer")
    count = min(available if default is None else default, available) if requested is None else requested
    if repeats > count:
        raise VitlabError(f"invalid repeats={repeats}; {count} images of {what} give at most {count} parts")
    return count


def spread(available: int, count: int, part: int, repeats: int) -> list[int]:
    """Returns the indices of one part of `count` images at even distances: image i is in part i mod `repeats`.

    >>> spread(10, 5, 0, 2), spread(10, 5, 1, 2)
    ([0, 4, 8], [2, 6])
    """
    return [place * available // count for place in range(part, count, repeats)]


def fingerprint_of(data: str, split: str, chosen: Any, available: int, count: int, part: int, repeats: int) -> str:
    """Identifies the images of one part, for provenance: how they were chosen, and what they are.

    Args:
        data: the data expression.
        split: test or train.
        chosen: the set of the chosen images, with a `fingerprint`; sets of files also have a `stamp`.
        available, count, part, repeats: as in `spread`.

    >>> class Chosen:
    ...     fingerprint = "ab12"
    >>> fingerprint_of("scenes", "test", Chosen(), 10, 10, 0, 1)
    'scenes test[all 10] ab12'
    >>> fingerprint_of("scenes", "test", Chosen(), 10, 5, 0, 2)
    'scenes test[5 of 10, evenly spaced, part 1 of 2] ab12'
    """
    how = f"all {count}" if count == available else f"{count} of {available}, evenly spaced"
    which = f", part {part + 1} of {repeats}" if repeats > 1 else ""
    digests = " ".join(filter(None, [chosen.fingerprint, getattr(chosen, "stamp", "")]))
    return f"{data} {split}[{how}{which}] {digests}"
