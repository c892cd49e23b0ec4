"""Disjoint parts of a set of images, and how many images they have."""

from __future__ import annotations

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
