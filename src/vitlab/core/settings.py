"""Validate settings given by the user against the signature of the function that receives them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

from vitlab.core.errors import VitlabError, unknown

#: Annotation -> predicate, and description for errors. A bool is an int in Python, but is not accepted as a number.
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "int": (lambda value: isinstance(value, Integral) and not isinstance(value, bool), "an integer"),
    "float": (lambda value: isinstance(value, Real) and not isinstance(value, bool), "a number"),
    "str": (lambda value: isinstance(value, str), "text"),
    "None": (lambda value: value is None, "None"),
}


def check_settings(name: str, function: Callable[..., Any], settings: Mapping[str, Any], skip: int = 2) -> None:
    """Raise an error for unknown settings and for values of a wrong type.

    Types are checked for parameters annotated with `bool`, `int`, `float`, `str`, `None` or a union of them; other
    annotations are not checked.

    Args:
        name: the name of the function in errors.
        function: the function that receives the settings.
        settings: values by name.
        skip: number of leading parameters that are not settings.

    >>> def measure(model, batches, *, renormalise: bool = False): ...
    >>> check_settings("attention_distance", measure, {"renormalise": "False"})
    Traceback (most recent call last):
    ...
    vitlab.core.errors.VitlabError: attention_distance: renormalise='False' is a str; expected True or False
    """
    parameters = dict(list(inspect.signature(function).parameters.items())[skip:])
    for key, value in settings.items():
        if key not in parameters:
            raise unknown(f"setting of {name}", key, parameters)
        kinds = _kinds(parameters[key].annotation)
        if kinds and not any(_KINDS[kind][0](value) for kind in kinds):
            expected = " or ".join(_KINDS[kind][1] for kind in kinds)
            raise VitlabError(f"{name}: {key}={value!r} is a {type(value).__name__}; expected {expected}")


def _kinds(annotation: Any) -> list[str]:
    """Returns the types of an annotation; an empty list if one of them is not in `_KINDS`."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    kinds = [part.strip() for part in text.split("|")]
    return kinds if all(kind in _KINDS for kind in kinds) else []
