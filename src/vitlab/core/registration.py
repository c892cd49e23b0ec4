"""`register`: add an object to vitlab in this process; wrong objects and taken names are refused at once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Any

from vitlab.core import extensions, plugins
from vitlab.core.descriptions import origin_of
from vitlab.core.errors import VitlabError, unknown

__all__ = ["register"]

#: What the objects of a kind need, and the attributes that are checked; kinds without an entry are functions.
_NEEDED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "instruments": ("a module, class or object with CARD and measure(model, batches, ...)", ("CARD", "measure")),
    "stress_tests": ("a module, class or object with CARD and measure(model, batches, ...)", ("CARD", "measure")),
    "adapters": (
        "a module or class with FAMILIES, CLASSES, ABSENT, family and blocks",
        ("FAMILIES", "CLASSES", "ABSENT", "family", "blocks"),
    ),
    "experiments": (
        "a module or class with TITLE, PAPER, CLAIMS, plan and check",
        ("TITLE", "PAPER", "CLAIMS", "plan", "check"),
    ),
}


def register(kind: str, name: str, thing: Any) -> None:
    """Add something to vitlab in this process.

    A second definition of the same class or function (same module and `__qualname__`, such as a notebook cell that is
    run again) replaces the first. Other objects under a taken name are refused.

    Args:
        kind: one of `extensions.KINDS`.
        name: its name in vitlab.
        thing: the object: a class (part), a function (recipe, loss, data set, model), or a module or class with the
            attributes of its kind (`CARD` and `measure` of an instrument).
    """
    if kind not in extensions.KINDS:
        raise unknown("kind of extension", kind, extensions.KINDS)
    if not isinstance(name, str) or not name.replace(".", "_").replace("-", "_").isidentifier():
        raise VitlabError(f"register({kind!r}, {name!r}, …): invalid name; expected letters, digits and underscores")
    _check_object(kind, name, thing)
    _check_name(kind, name, thing)
    extensions.store(kind, name, thing)


def _check_object(kind: str, name: str, thing: Any) -> None:
    """Raise an error for an object that its kind cannot use."""
    expected, attributes = _NEEDED.get(kind, ("a function", ()))
    if kind == "parts":
        expected, valid = "a class of torch.nn.Module", _is_module_class(thing)
    elif kind == "figures":
        expected, valid = "a function, or a module with draw", callable(thing) or callable(getattr(thing, "draw", None))
    elif attributes:
        valid = all(_usable(getattr(thing, each, None), each) for each in attributes)
    else:
        valid = callable(thing)
    if not valid:
        missing = [each for each in attributes if not _usable(getattr(thing, each, None), each)]
        without = f" without {', '.join(missing)}" if missing else ""
        raise VitlabError(f"register({kind!r}, {name!r}, …): got {_label(thing)}{without}; expected {expected}")


def _usable(value: Any, attribute: str) -> bool:
    """Whether an attribute is there; those with lower-case names are functions."""
    return callable(value) if attribute.islower() else value is not None


def _is_module_class(thing: Any) -> bool:
    """Whether a class is one of `torch.nn.Module`, without importing torch."""
    names = [f"{each.__module__}.{each.__qualname__}" for each in getattr(thing, "__mro__", ())]
    return "torch.nn.modules.module.Module" in names


def _check_name(kind: str, name: str, thing: Any) -> None:
    """Raise an error that names both origins if the name belongs to something else."""
    own = f"{_label(thing)}, registered in Python,"
    taken = "vitlab" if name in plugins.built_in(kind) else ""
    known = extensions.extensions(kind).get(name)
    if known is not None and not known.reference.startswith("registered:"):
        taken = taken or known.origin
    elif known is not None:
        earlier = extensions.resolve(known.reference)
        if earlier is not thing and _definition(earlier) != _definition(thing):
            taken = f"{_label(earlier)}, which is already registered in Python"
    if taken:
        raise VitlabError(f"{kind}: the name {name!r} of {own} is taken by {taken}; choose another name")
    if kind == "adapters":
        for family, other in plugins.family_adapters().items():
            if family in thing.FAMILIES and other != f"registered:{kind}:{name}":
                origin = origin_of(other) or "vitlab"
                raise VitlabError(f"families: the name {family!r} of {own} is taken by {origin}; choose another name")


def _definition(thing: Any) -> tuple[str, str] | object:
    """Module and qualified name of a definition; an object without them equals only itself."""
    if isinstance(thing, ModuleType):
        return "", thing.__name__
    if isinstance(thing, partial):
        return _definition(thing.func)
    if not hasattr(thing, "__qualname__") and callable(getattr(thing, "measure", None)):
        thing = thing.measure
    name = getattr(thing, "__qualname__", None)
    return (str(getattr(thing, "__module__", "")), str(name)) if name is not None else object()


def _label(thing: Any) -> str:
    """A short description of an object for errors."""
    if isinstance(thing, ModuleType):
        return f"module {thing.__name__}"
    name = getattr(thing, "__qualname__", None)
    if name is None:
        return f"{thing!r:.40} of type {type(thing).__name__}"
    return f"{'class' if isinstance(thing, type) else 'function'} {getattr(thing, '__module__', '')}.{name}"
