"""Settings of data expressions, checked against the annotations of the function that takes them.

An annotation is `int`, `float`, `bool`, `str`, `None`, a `Literal`, a `list` or `tuple` of these, a union, or
`Annotated[int, Between(1, 5)]` for a range.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from vitlab.core.errors import VitlabError, unknown


@dataclass(frozen=True)
class Between:
    """A range of numbers.

    Args:
        low, high: its ends.
        open_low, open_high: whether that end is excluded.
        cost: what a value that is too large would take, for the error.
    """

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False
    cost: Callable[[int], str] | None = None

    def __contains__(self, value: float) -> bool:
        above = self.low < value if self.open_low else self.low <= value
        return above and (value < self.high if self.open_high else value <= self.high)

    def __str__(self) -> str:
        low = f"above {self.low:,} and" if self.open_low else f"from {self.low:,}"
        high = "below" if self.open_high else "up to" if self.open_low else "to"
        return f"{low} {high} {self.high:,}"


def check_settings(name: str, settings: Mapping[str, Any], takes: Callable[..., Any], also: Mapping[str, Any]) -> None:
    """Raise where a setting is unknown, missing, of the wrong type or out of range.

    Args:
        name: of the data set, for the error.
        settings: by name.
        takes: the function that takes them, after one positional argument.
        also: annotations of further settings.

    >>> def opener(place, severity: Annotated[int, Between(1, 5)] | None = None): ...
    >>> check_settings("fog", {"severity": 9}, opener, {})
    Traceback (most recent call last):
    vitlab.core.errors.VitlabError: fog(severity=9): expected an integer from 1 to 5, or None
    """
    hints = get_type_hints(takes, include_extras=True)
    _, *parameters = inspect.signature(takes).parameters.values()
    kinds = {**also, **{parameter.name: hints[parameter.name] for parameter in parameters}}
    ordered = dict.fromkeys([*(parameter.name for parameter in parameters), *also])
    for key, value in settings.items():
        if key not in kinds:
            raise unknown(f"setting of {name}", key, ordered)
        if not _fits(value, kinds[key]):
            raise VitlabError(f"{name}({key}={value!r}): expected {_words(kinds[key])}{_cost(value, kinds[key])}")
    for parameter in parameters:
        if parameter.default is parameter.empty and parameter.name not in settings:
            raise VitlabError(f"{name} needs {parameter.name}; write {name}({parameter.name}='…')")


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is what an annotation says; lists count as tuples, and integers as floats."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _fits(value, arguments[0]) and all(value in limit for limit in arguments[1:])
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in arguments)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in arguments)
    if origin is tuple:
        same_length = isinstance(value, list | tuple) and len(value) == len(arguments)
        return same_length and all(map(_fits, value, arguments))
    if origin is list:
        return isinstance(value, list | tuple) and len(value) > 0 and all(_fits(each, arguments[0]) for each in value)
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is kind  # True is no integer here


def _words(kind: Any) -> str:
    """An annotation in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return " ".join([_words(arguments[0]), *map(str, arguments[1:])])
    if origin in (Union, UnionType):
        return ", or ".join(map(_words, arguments))
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin is tuple:
        return f"({', '.join(map(_words, arguments))})"
    if origin is list:
        return f"a list, each {_words(arguments[0])}"
    words = {int: "an integer", float: "a number", bool: "True or False", str: "text in quotes", NoneType: "None"}
    return words[kind]


def _cost(value: Any, kind: Any) -> str:
    """What a value that is too large would take, where its range says."""
    for limit in get_args(kind)[1:] if get_origin(kind) is Annotated else ():
        if limit.cost is not None and type(value) is int and value > limit.high:
            return f"; {limit.cost(value)}"
    return ""
