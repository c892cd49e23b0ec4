"""Validate the settings of data expressions against the annotations of the function that takes them.

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
        low, high: its limits.
        open_low, open_high: whether that limit is excluded.
        cost: describes the cost of a value that is too large, for the error.
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


def check_settings(
    name: str, settings: Mapping[str, Any], function: Callable[..., Any], shared: Mapping[str, Any]
) -> None:
    """Raise if a setting is unknown, missing, of the wrong type or out of range.

    Args:
        name: name of the data set, for the error.
        settings: values by name.
        function: takes the settings, after one positional argument.
        shared: annotations of settings that every data set takes.

    >>> def opener(location, severity: Annotated[int, Between(1, 5)] | None = None): ...
    >>> check_settings("fog", {"severity": 9}, opener, {})
    Traceback (most recent call last):
    vitlab.core.errors.VitlabError: fog(severity=9): expected an integer from 1 to 5, or None
    """
    hints = get_type_hints(function, include_extras=True)
    _, *parameters = inspect.signature(function).parameters.values()
    annotations = {**shared, **{parameter.name: hints[parameter.name] for parameter in parameters}}
    ordered = dict.fromkeys([*(parameter.name for parameter in parameters), *shared])
    for key, value in settings.items():
        if key not in annotations:
            raise unknown(f"setting of {name}", key, ordered)
        if not _fits(value, annotations[key]):
            expected = f"{_words(annotations[key])}{_cost(value, annotations[key])}"
            raise VitlabError(f"{name}({key}={value!r}): expected {expected}")
    for parameter in parameters:
        if parameter.default is parameter.empty and parameter.name not in settings:
            raise VitlabError(f"{name} requires {parameter.name}; write {name}({parameter.name}='…')")


def _fits(value: Any, annotation: Any) -> bool:
    """Returns whether a value matches an annotation; lists are accepted as tuples, and integers as floats."""
    origin, arguments = get_origin(annotation), get_args(annotation)
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
    if annotation is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is annotation  # True is not accepted as an integer


def _words(annotation: Any) -> str:
    """Describe an annotation in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
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
    return words[annotation]


def _cost(value: Any, annotation: Any) -> str:
    """Describe the cost of a value that is too large, if its range defines it."""
    for limit in get_args(annotation)[1:] if get_origin(annotation) is Annotated else ():
        if limit.cost is not None and type(value) is int and value > limit.high:
            return f"; {limit.cost(value)}"
    return ""
