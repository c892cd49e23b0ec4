"""Conversion of values to types that JSON can store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import numpy as np

from vitlab.core.errors import VitlabError


def plain(value: Any, where: str) -> Any:
    """Returns a value as it would be read back from JSON.

    Args:
        value: numbers, text, None, booleans, paths, numpy scalars and arrays, lists, tuples, sets and mappings.
        where: the location of the value, for the error.

    Raises:
        VitlabError: if JSON cannot store the value.

    >>> plain({"sizes": (1, np.int64(2)), 3: PurePath("a/b")}, "settings")
    {'sizes': [1, 2], '3': 'a/b'}
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (np.generic, np.ndarray)):
        return plain(value.tolist(), where)
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): plain(each, where) for key, each in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(each, where) for each in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(each, where) for each in value)
    if isinstance(value, PurePath):
        return str(value)
    for kind in (str, int, float):  # subclasses, such as string enumerations
        if isinstance(value, kind):
            return kind(value)
    raise VitlabError(
        f"{where}: {value!r} is a {type(value).__name__}; expected numbers, text, or lists and dicts of them"
    )
