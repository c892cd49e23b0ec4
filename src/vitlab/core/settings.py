"""Validate settings against the signature of the function or class that receives them.

An annotation is `bool`, `int`, `float`, `str`, `None`, a class, a `Literal`, a `Sequence`, `list` or `tuple` of these,
a union, or one of them with bounds: `Annotated[int, Range(1, 5)]` (`core/bounds.py`). Annotations that are none of
these, and parameters without one, are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from numbers import Real
from typing import Any

from vitlab.core.annotations import fits, hint, shown, words
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.signatures import Setting, settings_of, takes_any

__all__ = ["check_fields", "check_settings", "check_value"]


def check_settings(
    name: str,
    function: Callable[..., Any],
    settings: Mapping[str, Any],
    skip: int | Collection[str] = 2,
    shared: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Raise an error if a setting is unknown, missing, of the wrong type or out of range.

    Args:
        name: the name of the function in errors.
        function: the function or class that receives the settings.
        settings: values by name.
        skip: the number of leading parameters, or the names of parameters, that are not settings.
        shared: annotations of settings that are taken besides those of the function.

    Returns:
        The settings; numbers, and lists of them, of numpy and torch as Python's, which instruments expect.

    >>> def measure(model, batches, *, renormalise: bool = False): ...
    >>> check_settings("attention_distance", measure, {"renormalise": "False"})
    Traceback (most recent call last):
    ...
    vitlab.core.errors.VitlabError: attention_distance(renormalise='False'): expected True or False
    """
    declared = {each.name: each for each in settings_of(function, skip)}
    known = {**declared, **{key: Setting(key, annotation, None) for key, annotation in (shared or {}).items()}}
    for key, value in settings.items():
        if key in known:
            check_value(name, key, value, known[key].annotation)
        elif not takes_any(function):
            raise unknown(f"setting of {name}", key, known)
    for setting in declared.values():
        if setting.required and setting.name not in settings:
            raise VitlabError(f"{name} requires {setting.name}; write {name}({setting.name}='…')")
    return {key: _plain(value) if key in known else value for key, value in settings.items()}


def _plain(value: Any) -> Any:
    """A one-dimensional array as a list, and numbers of numpy as Python's, also in lists; other values unchanged."""
    if getattr(value, "ndim", 0) == 1 and hasattr(value, "tolist"):
        return value.tolist()
    return _python_numbers(value)


def _python_numbers(value: Any) -> Any:
    if isinstance(value, Real) and hasattr(value, "item"):
        return value.item()
    return type(value)(map(_python_numbers, value)) if type(value) in (list, tuple) else value


def check_value(name: str, key: str, value: Any, annotation: Any) -> None:
    """Raise an error if the value of one setting does not match its annotation.

    Args:
        name: what the setting belongs to; empty if the key says it.
        key: the name of the setting.
        value: what was given.
        annotation: what is expected.
    """
    if not fits(value, annotation):
        given = f"{name}({key}={shown(value)})" if name else f"{key}={shown(value)}"
        raise VitlabError(f"{given}: expected {words(annotation)}{hint(value, annotation)}")


def check_fields(data: Any) -> None:
    """Check the fields of a dataclass; numbers of numpy become Python's, as they would be read back from JSON.

    Other values are not converted: digests of stored recipes depend on their types.
    """
    for setting in settings_of(type(data)):
        value = getattr(data, setting.name)
        check_value(type(data).__name__, setting.name, value, setting.annotation)
        object.__setattr__(data, setting.name, _plain(value))  # of a frozen dataclass
