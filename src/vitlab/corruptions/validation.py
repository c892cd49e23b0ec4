"""Check integers from Python, NumPy or torch."""

from __future__ import annotations

from operator import index
from typing import Any

from vitlab.core.errors import VitlabError


def integer(name: str, given: Any, expected: str = "an integer") -> int:
    """Returns an integer as a Python int, which cannot overflow; raises an error for other types, also 3.0 and True.

    Args:
        name: the name of the argument, for the error.
        given: its value.
        expected: the expected value, for the error.

    >>> import numpy as np
    >>> integer("seed", np.uint8(200)) * 2
    400
    >>> integer("seed", 1.5)
    Traceback (most recent call last):
    vitlab.core.errors.VitlabError: invalid seed=1.5; expected an integer
    """
    try:
        if isinstance(given, bool):
            raise TypeError
        return index(given)
    except TypeError:
        raise VitlabError(f"invalid {name}={given!r}; expected {expected}") from None
