"""The settings that a function or class declares on its signature, with their types, defaults, bounds and help."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, is_dataclass
from functools import cache, partial, reduce
from operator import or_
from types import NoneType
from typing import Any, get_type_hints

from vitlab.core.annotations import choices, range_name, type_name

__all__ = ["Setting", "settings_of", "takes_any"]

_REQUIRED: Any = inspect.Parameter.empty
_PLAIN: dict[str, Any] = {"bool": bool, "int": int, "float": float, "str": str, "None": NoneType}


@dataclass(frozen=True)
class Setting:
    """One setting of a function.

    Args:
        name: of the parameter.
        annotation: its annotation with bounds; `Any` if it has none.
        default: its default; `inspect.Parameter.empty` if there is none.
        help: one sentence from the docstring; empty if there is none.
    """

    name: str
    annotation: Any = Any
    default: Any = _REQUIRED
    help: str = ""

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is _REQUIRED

    @property
    def choices(self) -> list[Any]:
        """The valid values, if they are listed."""
        return choices(self.annotation)

    @property
    def row(self) -> dict[str, str]:
        """Its name, type, default, range and help as text, for tables."""
        default = "required" if self.required else repr(self.default)
        known = type_name(self.annotation) or ("" if self.required else type(self.default).__name__)
        return {
            "setting": self.name,
            "type": known,
            "default": default,
            "range": range_name(self.annotation),
            "help": self.help,
        }


def settings_of(function: Callable[..., Any], skip: int | Collection[str] = 0) -> list[Setting]:
    """Returns the settings of a function or class.

    Args:
        function: the function or class.
        skip: the number of leading parameters, or the names of parameters, that are not settings.

    >>> def measure(model, batches, *, bins: int = 10): "Measure.\\n\\nArgs:\\n    bins: number of bins."
    >>> settings_of(measure, 2)[0].row
    {'setting': 'bins', 'type': 'int', 'default': '10', 'range': '', 'help': 'number of bins.'}
    """
    declared = _declared(function)
    if isinstance(skip, int):
        return list(declared[skip:])
    return [each for each in declared if each.name not in skip]


def takes_any(function: Callable[..., Any]) -> bool:
    """Whether a function takes settings that its signature does not name (**kwargs)."""
    return any(each.kind is each.VAR_KEYWORD for each in inspect.signature(function).parameters.values())


@cache
def _declared(function: Callable[..., Any]) -> tuple[Setting, ...]:
    annotations, helps = _annotations(function), _helps(inspect.getdoc(function) or "")
    parameters = inspect.signature(function).parameters.values()
    named = [each for each in parameters if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    return tuple(
        Setting(each.name, annotations.get(each.name, Any), each.default, helps.get(each.name, "")) for each in named
    )


def _annotations(function: Any) -> dict[str, Any]:
    """The annotations by parameter. Those of an extension may name what is not imported: only plain types are used."""
    if isinstance(function, partial):
        function = function.func
    if inspect.isclass(function) and not is_dataclass(function):
        function = function.__init__
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # code of others
        written = getattr(function, "__annotations__", {})
        return {name: _plain(annotation) for name, annotation in written.items()}


def _plain(annotation: Any) -> Any:
    """The type of an annotation that cannot be evaluated: a union of plain types, else any value."""
    names = [name.strip() for name in annotation.split("|")] if isinstance(annotation, str) else []
    known = bool(names) and all(name in _PLAIN for name in names)
    return reduce(or_, (_PLAIN[name] for name in names)) if known else Any


_ENTRY = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n {8,}.*)*)", re.MULTILINE)


def _helps(docstring: str) -> dict[str, str]:
    """The first sentence on each argument in a docstring."""
    _, _, section = docstring.partition("Args:\n")
    section = re.split(r"\n\n|\n(?=\S)", section)[0]
    found: dict[str, str] = {}
    for names, text in _ENTRY.findall(section):
        sentence = re.split(r"(?<=[a-z0-9)`])\. (?=[A-Z])", " ".join(text.split()))[0]
        found |= dict.fromkeys(names.split(", "), sentence if sentence.endswith(".") else f"{sentence}.")
    return found
