"""Pickled arrays of bytes, read without running anything that the file asks for.

A pickle is a program: it names functions and calls them. Here the few names that numpy arrays need become inert
stand-ins, which only remember what they were called with, and any other name is refused. So the official python files
of CIFAR can be read from an untrusted disk.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitlab.core.errors import VitlabError

_ARRAY = "_reconstruct"
_NAMES = {
    ("numpy.core.multiarray", _ARRAY),  # numpy 1, and the official files
    ("numpy._core.multiarray", _ARRAY),  # numpy 2
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),  # how Python 3 writes bytes in Python 2's protocol
}


def read_pickled_arrays(path: Path) -> dict[str, Any]:
    """The dictionary in a pickle, with uint8 arrays as arrays and keys as text; other values as they are.

    Raises a VitlabError for a pickle that names anything but numpy arrays, and for damaged files.
    """
    try:
        with path.open("rb") as file:
            content = _InertUnpickler(file, encoding="bytes").load()
        return {_text(key): _array(value) if isinstance(value, _Made) else value for key, value in content.items()}
    except VitlabError as error:
        raise VitlabError(f"{path} is refused: {error}") from None
    except Exception as error:  # damaged pickles raise nearly anything
        raise VitlabError(f"{path} is damaged, or no pickle of arrays: {error}") from error


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> _Name:
        if (module, name) not in _NAMES:
            raise VitlabError(f"it asks for {module}.{name}, which no array needs; nothing of it was run")
        # A new one each time: a pickle can put attributes on what it holds, and this one dies with it.
        return _Name(name)


class _Name:
    """Stands in for a function or a class."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any) -> Any:
        if self.name == "encode":
            return arguments[0].encode("latin-1")
        return _Made(self.name, arguments)


class _Made:
    """Stands in for what a function returned."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments, self.state = name, arguments, None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _array(made: _Made) -> NDArray[np.uint8]:
    """numpy's own state of an array: version, shape, dtype, whether columns come first, bytes."""
    if made.name != _ARRAY or not isinstance(made.state, tuple) or len(made.state) != 5:
        raise VitlabError(f"it holds a {made.name} that is no array")
    _, shape, dtype, columns_first, raw = made.state
    if not isinstance(dtype, _Made) or _text(dtype.arguments[0]) != "u1":
        raise VitlabError("it holds an array that is not of uint8")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if columns_first else "C")


def _text(value: bytes | str) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
