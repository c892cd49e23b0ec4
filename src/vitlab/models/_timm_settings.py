"""Settings of timm's models, checked against the annotations of the constructor of the class that a name builds.

timm converts many values, so only what cannot be meant is refused: text for a number, a number for True or False,
numbers that are not finite, and None, which timm takes for the default, where the annotation does not have it. One
number is accepted for a list, a list for a number, and everything for annotations that are not of plain types.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from torch import nn

from vitlab.core.annotations import fits, shown, words
from vitlab.core.errors import VitlabError
from vitlab.core.settings import check_value
from vitlab.core.signatures import Setting

_PLAIN = (bool, int, float, str, NoneType)
_LISTS = (list, tuple, Sequence)


def check_timm_settings(name: str, settings: Mapping[str, Any], source: str = "timm") -> None:
    """Raise an error if a setting of a model of timm cannot be meant.

    Args:
        name: of the model in timm's registry.
        settings: by name; those that the class of the model does not declare are checked for finite numbers only.
        source: of the model in its expression, for the error.
    """
    for key, value in settings.items():
        if not all(map(is_finite, items(value))):
            raise VitlabError(f"{source}/{name}({key}={shown(value)}): expected finite numbers")
    if not settings:
        return
    declared = constructor_settings(_class_of(name))
    for key, value in settings.items():
        if key in declared and not accepts(value, *declared[key]):
            raise VitlabError(f"{source}/{name}({key}={shown(value)}): expected {_expected(*declared[key])}")


def check_own_settings(name: str, settings: Mapping[str, Any]) -> None:
    """Raise an error if a setting does not fit the constructor of a class of this package, which converts nothing.

    Args:
        name: of a model of this package; those that build a class of timm are not checked.
        settings: by name; timm takes None for the default.
    """
    kind = _class_of(name) if settings else None
    if kind is None or not kind.__module__.startswith("vitlab."):
        return
    declared = constructor_settings(kind)
    for key, value in settings.items():
        if key in declared and value is not None:
            check_value(f"vitlab/{name}", key, value, declared[key][0])


def timm_settings(name: str) -> list[Setting]:
    """The settings of a model of timm: the parameters of its class, with the values that the name gives as defaults.

    Args:
        name: of the model in timm's registry.
    """
    kind = _class_of(name)
    given = _arguments_of(name, kind) if kind is not None else {}
    found = []
    for key, (annotation, default) in constructor_settings(kind).items():
        value = given.get(key, default)
        plain = all(type(each) in _PLAIN for each in items(value))
        found.append(Setting(key, _plain_union(annotation, default), value if plain else None))
    return found


def _plain_union(annotation: Any, default: Any) -> Any:
    """The types that text can give; names of layers for types of which it gives no values."""
    kinds = (_kinds(annotation) or {str, NoneType}) | _types(default)
    union: Any = reduce(or_, [each for each in _PLAIN if each in kinds and each is not NoneType])
    several = _has_list(annotation) or isinstance(default, (list, tuple))
    union = union | list[union] if several else union
    return union | None if NoneType in kinds else union


def _arguments_of(name: str, kind: type[nn.Module]) -> dict[str, Any]:
    """The arguments that timm gives the constructor of a class for a name."""
    import timm

    given: dict[str, Any] = {}

    class Recorded(kind):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            found = inspect.signature(kind.__init__).bind(self, *args, **kwargs).arguments
            given.update({**found, **found.get("kwargs", {})})
            super().__init__(*args, **kwargs)

    module = inspect.getmodule(kind)
    original = vars(module).get(kind.__name__)
    try:
        setattr(module, kind.__name__, Recorded)
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            timm.create_model(name, pretrained=False)
    except Exception:  # the defaults of the class are shown
        given.clear()
    finally:
        setattr(module, kind.__name__, original)
    return given


def constructor_settings(kind: type[nn.Module] | None) -> dict[str, tuple[Any, Any]]:
    """The annotation and the default of each parameter of a class; of its bases, too, if it passes **kwargs on."""
    found: dict[str, tuple[Any, Any]] = {}
    for base in kind.__mro__ if kind is not None else ():
        if "__init__" not in vars(base):
            continue
        parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        annotations = _annotations(base)
        for each in parameters:
            if each.name in annotations:
                found.setdefault(each.name, (annotations[each.name], each.default))
        if not any(each.kind is each.VAR_KEYWORD for each in parameters):
            break
    return found


def accepts(value: Any, annotation: Any, default: Any = None) -> bool:
    """Returns whether a value can be meant for a parameter.

    >>> accepts("no", bool), accepts(3, bool), accepts((2, 2), int), accepts(4, float), accepts("x", float)
    (False, False, True, True, False)
    """
    kinds = _kinds(annotation)
    if kinds is None:
        return True
    kinds |= _types(default)
    several = _has_list(annotation) or kinds & {int, float}
    if isinstance(value, (list, tuple)) and not several:
        return False
    return all(any(fits(item, kind) for kind in kinds) for item in items(value))


def _expected(annotation: Any, default: Any) -> str:
    kinds = (_kinds(annotation) or set()) | _types(default)
    plain = ", or ".join(words(kind) for kind in _PLAIN if kind in kinds)
    return f"{plain}, or a list of these" if _has_list(annotation) else plain


def _kinds(annotation: Any) -> set[Any] | None:
    """The plain types in an annotation; None if it has others, for which every value is accepted."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return {type(each) for each in arguments}
    if origin in (Union, UnionType, *_LISTS):
        parts = [_kinds(each) for each in arguments if each is not Ellipsis]
        return None if None in parts or not parts else set().union(*(part for part in parts if part))
    return {annotation} if annotation in _PLAIN else None


def _types(default: Any) -> set[Any]:
    """The plain types in a default, which the annotations of some classes do not have."""
    return {type(each) for each in items(default)} & set(_PLAIN)


def _has_list(annotation: Any) -> bool:
    return get_origin(annotation) in _LISTS or any(map(_has_list, get_args(annotation)))


def items(value: Any) -> Iterator[Any]:
    """The values in nested lists, or the value itself."""
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from items(each)
    else:
        yield value


def is_finite(value: Any) -> bool:
    """Whether a value is not infinite and not nan."""
    return not isinstance(value, float) or math.isfinite(value)


def _annotations(kind: type) -> dict[str, Any]:
    try:
        return get_type_hints(vars(kind)["__init__"])
    except Exception:  # annotations that cannot be evaluated are not checked
        return {}


@cache
def _class_of(name: str) -> type[nn.Module] | None:
    """The class of a model, which is built on the meta device; None if that fails."""
    import timm

    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            return type(timm.create_model(name, pretrained=False))
    except Exception:  # building the model states the reason
        return None
