"""Integers as any library has them: Python's, NumPy's, torch's."""

from __future__ import annotations

from operator import index
from typing import Any

from vitlab.core.errors import VitlabError


def integer(what: str, given: Any, expected: str = "an integer") -> int:
    """An integer as Python's own, which has no size to overflow; an error for all else, 3.0 and True included.

    Args:
        what: the argument, for the error. given: its value. expected: what the error asks for.

    >>> import numpy as np
    >>> integer("seed", np.uint8(200)) * 2
    400
    >>> integer("seed", 1.5)
    Traceback (most recent call last):
    vitlab.core.errors.VitlabError: seed=1.5: give an integer
    """
    try:
        if isinstance(given, bool):
            raise TypeError
        return index(given)
    except TypeError:
        raise VitlabError(f"{what}={given!r}: give {expected}") from None
