"""Read pickled uint8 arrays without executing code from the file.

A pickle can call any function by name. Here the few names that numpy arrays need are replaced by placeholders, which
only store their arguments; any other name is an error. The official python files of CIFAR can thus be read from an
untrusted source.
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
    ("_codecs", "encode"),  # bytes that Python 3 wrote in protocol 2
}


def read_pickled_arrays(path: Path) -> dict[str, Any]:
    """Returns the dictionary in a pickle, with uint8 arrays as arrays and keys as text; other values unchanged.

    Raises a VitlabError if the pickle refers to anything but numpy arrays, or if the file is damaged.
    """
    try:
        with path.open("rb") as file:
            content = _InertUnpickler(file, encoding="bytes").load()
        return {_text(key): _array(value) if isinstance(value, _Call) else value for key, value in content.items()}
    except VitlabError as error:
        raise VitlabError(f"refused to read {path}: {error}") from None
    except Exception as error:  # damaged pickles raise many types of exceptions
        raise VitlabError(f"{path} is damaged or not a pickle of arrays: {error}") from error


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> _Name:
        if (module, name) not in _NAMES:
            raise VitlabError(f"it refers to {module}.{name}, which no array needs; nothing was executed")
        # A new object each time: a pickle can set attributes on it, which must not persist.
        return _Name(name)


class _Name:
    """Placeholder for a function or a class."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any) -> Any:
        if self.name == "encode":
            return arguments[0].encode("latin-1")
        return _Call(self.name, arguments)


class _Call:
    """Placeholder for the result of a call."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments, self.state = name, arguments, None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _array(call: _Call) -> NDArray[np.uint8]:
    """Build an array from its pickled state: version, shape, dtype, whether in Fortran order, bytes."""
    if call.name != _ARRAY or not isinstance(call.state, tuple) or len(call.state) != 5:
        raise VitlabError(f"it contains a {call.name} that is not an array")
    _, shape, dtype, fortran_order, raw = call.state
    if not isinstance(dtype, _Call) or _text(dtype.arguments[0]) != "u1":
        raise VitlabError("it contains an array that is not of uint8")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran_order else "C")


def _text(value: bytes | str) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
