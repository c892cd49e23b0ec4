"""Settings of Hugging Face's and torchvision's models: types and bounds from their configurations and constructors.

A type is the one that is declared, or that of the default. Bounds follow from the name of a setting: sizes and numbers
of things are positive, rates of dropout and probabilities are from 0 to 1. A bound that the default itself does not
meet is not applied. Values that text cannot give, such as classes of layers, are not settings.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import torch
from torch import nn

from vitlab.core.annotations import fits, shown
from vitlab.core.bounds import Choices, Length, Range
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.settings import check_value
from vitlab.core.signatures import Setting
from vitlab.models._timm_settings import constructor_settings, is_finite, items

_LISTS = (list, tuple, Sequence)
_MANY = 10**9
_CLASSES = 10**5  # their names are made one by one
_PIXELS = re.compile(r"(^|_)(image|img|input|crop)_(size|height|width)s?$")
_RATE = re.compile(r"(^|_)drop|dropout|(^|_)probs?(_|$)")
_EPSILON = re.compile(r"(^|_)eps(ilon)?$")
_CHANNELS = re.compile(r"^(num|in)_(channels|chans)$")
_OPTIONAL = re.compile(r"^(num|n)_\w*tokens$|^(num|n)_groups$")
_RATIO = re.compile(r"(^|_)ratios?$")
_COUNT = re.compile(
    r"^num_|(^|_)(sizes?|dims?|channels|heads|layers|depths?|widths?|strides?|groups|labels|classes|hidden|patches)$"
)


def annotation_of(name: str, declared: Any, default: Any) -> Any:
    """The type of a setting with bounds; None if text cannot give a value of it.

    Args:
        name: of the setting.
        declared: its annotation; `Any` if it has none.
        default: its default; `inspect.Parameter.empty` if there is none.

    >>> from collections.abc import Callable
    >>> from vitlab.core.annotations import words
    >>> words(annotation_of("hidden_size", int, 24)), words(annotation_of("attention_dropout", float | int, 0.0))
    ('an integer from 1 to 1,000,000,000', 'a number from 0 to 1')
    >>> words(annotation_of("depths", Any, (2, 2))), words(annotation_of("act", int | None, None))
    ('a list of 1 to 100 values, each an integer from 1 to 1,000,000,000', 'an integer from -1,000,000,000 to \
1,000,000,000, or None')
    >>> annotation_of("norm_layer", Callable[..., nn.Module] | None, None), annotation_of("other", Any, None)
    (None, typing.Any)
    """
    known = [] if default is inspect.Parameter.empty else list(items(default))
    found, own = _bounded(name, declared, known), _type_of(default)
    if own is not None and (found is None or not fits(default, found)):
        found = _union([found, _bounded(name, own, known)])
    if declared is Any and default is None:
        return Any
    return None if found is NoneType else found


def _bounded(name: str, declared: Any, known: Sequence[Any]) -> Any:
    """A declared type with the bounds of the name; None for a type of which text gives no values."""
    origin, arguments = get_origin(declared), get_args(declared)
    if declared in (bool, NoneType, None):
        return bool if declared is bool else NoneType
    if declared is str:
        return Annotated[str, Choices(_activations())] if _is_activation(name, known) else str
    if declared in (int, float):
        kind = float if _RATE.search(name) or _EPSILON.search(name) else declared
        bound = _bound(name, kind, known)
        return Annotated[kind, bound] if bound is not None else kind
    if declared is dict or origin is dict:
        return dict
    if origin is Literal:
        return declared
    if origin in (Union, UnionType):
        return _union([_bounded(name, each, known) for each in arguments])
    if origin is tuple and arguments and Ellipsis not in arguments:
        parts = [_bounded(name, each, known) for each in arguments]
        return None if None in parts else tuple[tuple(parts)]  # type: ignore[misc]
    if origin in _LISTS and arguments:
        part = _bounded(name, arguments[0], known)
        return None if part is None else Annotated[Sequence[part], Length(0 if known == [] else 1, 100)]  # type: ignore[valid-type]
    return Annotated[Sequence[Any], Length(0, 100)] if declared in _LISTS else None


def _union(parts: Iterable[Any]) -> Any:
    """The union of types, without integers beside floats and lists beside pairs; None without types."""
    kept = [each for each in dict.fromkeys(parts) if each is not None]
    if any(_plain(each) is float for each in kept):
        kept = [each for each in kept if _plain(each) is not int]
    if any(get_origin(each) is tuple for each in kept):
        kept = [each for each in kept if get_origin(_plain(each)) not in _LISTS or get_origin(each) is tuple]
    return reduce(or_, kept) if kept else None


def _plain(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _type_of(default: Any) -> Any:
    """The type of a default; None if text cannot give it."""
    if default is None or type(default) in (bool, int, float, str):
        return type(default)
    if isinstance(default, dict):
        return dict
    if isinstance(default, list | tuple):
        kinds = [_type_of(each) for each in default]
        several = None if None in kinds else _union(kinds)
        return list[several] if several is not None else list  # type: ignore[valid-type]
    return None


def _bound(name: str, kind: type, known: Sequence[Any]) -> Range | None:
    """The bounds of a number that the name implies, if the default meets them."""
    wide = Range(-_MANY, _MANY)
    implied = wide
    if _RATE.search(name):
        implied = Range(0, 1)
    elif _EPSILON.search(name):
        implied = Range(0, 1, open_low=True)
    elif _RATIO.search(name):
        implied = Range(0, 1000, open_low=True)
    elif _PIXELS.search(name):
        implied = Range(1, 4096)
    elif name in ("num_classes", "num_labels"):
        implied = Range(1, _CLASSES)
    elif kind is int and _CHANNELS.search(name):
        implied = Range(1, 1024)
    elif kind is int and _OPTIONAL.search(name):
        implied = Range(0, _MANY)
    elif kind is int and _COUNT.search(name):
        implied = Range(1, _MANY)
    numbers = [each for each in known if isinstance(each, int | float) and not isinstance(each, bool)]
    return next((bound for bound in (implied, wide) if all(each in bound for each in numbers)), None)


def _is_activation(name: str, known: Sequence[Any]) -> bool:
    return re.search(r"(^|_)(act|activation)(_fn|_function)?$", name) is not None and all(
        each in _activations() for each in known if isinstance(each, str)
    )


@cache
def _activations() -> tuple[str, ...]:
    """The names of Hugging Face's activation functions; none without the library."""
    try:
        from transformers.activations import ACT2FN
    except ImportError:
        return ()
    return tuple(sorted(ACT2FN))


# -- Hugging Face ------------------------------------------------------------------------------------------------------

#: Settings of every model besides those of its configuration, with the names of their attributes.
_EVERYWHERE: dict[str, Any] = {
    "num_labels": Annotated[int, Range(1, _CLASSES)],
    "attn_implementation": Literal["eager", "sdpa", "flash_attention_2", "flex_attention"] | None,
    "dtype": Literal["float32", "float16", "bfloat16", "float64"] | None,
}


def configuration_settings(config: Any) -> list[Setting]:
    """The settings of a model of Hugging Face: the fields of its configuration, whose values are the defaults.

    Fields that every configuration has, such as `return_dict`, are not settings of a model, except the number of
    labels, the precision and how attention is computed.

    Args:
        config: the configuration, of the model's folder or of the hub.
    """
    from transformers import PretrainedConfig

    shared = {*vars(PretrainedConfig()), *dir(PretrainedConfig)} - {"num_labels"}
    declared = {each.name: each.type for each in dataclasses.fields(config)} if dataclasses.is_dataclass(config) else {}
    names = [*vars(config), *declared, *getattr(config, "attribute_map", {}), "out_features", "out_indices"]
    found = {}
    for name in dict.fromkeys(names):
        if name.startswith("_") or name in shared:
            continue
        try:
            default = getattr(config, name)
        except Exception:  # not there, or different in each layer
            continue
        if isinstance(default, PretrainedConfig):
            found[name] = Setting(name, dict, default.to_dict())
        else:
            annotation = annotation_of(name, declared.get(name, Any), default)
            found[name] = Setting(name, annotation, default)
    defaults = {"num_labels": getattr(config, "num_labels", None)}
    found |= {name: Setting(name, each, defaults.get(name)) for name, each in _EVERYWHERE.items()}
    return [each for each in found.values() if each.annotation is not None]


def check_configuration(what: str, config: Any, settings: Mapping[str, Any]) -> None:
    """Raise an error if a setting is not in the configuration of a model of Hugging Face, or cannot be meant.

    Args:
        what: the model, for the error.
        config: its configuration without the settings.
        settings: by name; those of a nested configuration, such as `vision_config`, in a dict.
    """
    _check(what, configuration_settings(config), settings)
    for name, value in settings.items():
        nested = getattr(config, name) if name not in _EVERYWHERE else None
        if hasattr(nested, "to_dict") and isinstance(value, dict):
            check_configuration(f"{what}({name})", nested, value)


def _check(what: str, declared: Sequence[Setting], settings: Mapping[str, Any]) -> None:
    known = {each.name: each for each in declared}
    for name, value in settings.items():
        if name not in known:
            raise unknown(f"setting of {what}", name, known)
        check_value(what, name, value, known[name].annotation)
        if not all(map(is_finite, items(value))):
            raise VitlabError(f"{what}({name}={shown(value)}): expected finite numbers")


# -- torchvision -------------------------------------------------------------------------------------------------------


def torchvision_settings(name: str) -> list[Setting]:
    """The settings of a model of torchvision: the parameters of its class that its name does not fix.

    Args:
        name: of the model in torchvision's registry.
    """
    return [each for each in _declared(name) if not _is_fixed(name, each)]


def check_torchvision_settings(name: str, settings: Mapping[str, Any]) -> None:
    """Raise an error if a setting of a model of torchvision is unknown, is fixed by the name, or cannot be meant.

    Args:
        name: of the model in torchvision's registry.
        settings: by name.
    """
    if not settings:
        return
    what = f"torchvision/{name}"
    for each in _declared(name):
        if each.name in settings and _is_fixed(name, each):
            given = f"{what}({each.name}={shown(settings[each.name])})"
            raise VitlabError(f"{given}: the name of the model gives {each.name}; omit it, or use another model")
    _check(what, torchvision_settings(name), settings)


@cache
def _declared(name: str) -> tuple[Setting, ...]:
    kind = _built_on_meta(name, {})
    declared = constructor_settings(None if isinstance(kind, Exception) else kind)
    found = (Setting(key, annotation_of(key, *each), each[1]) for key, each in declared.items())
    return tuple(each for each in found if each.annotation is not None)


@cache
def _is_fixed(name: str, setting: Setting) -> bool:
    """Whether the function of a name gives a parameter of the class itself, and so takes no second value."""
    error = _built_on_meta(name, {setting.name: None})
    return isinstance(error, TypeError) and "multiple values" in str(error)


def _built_on_meta(name: str, settings: Mapping[str, Any]) -> type[nn.Module] | Exception:
    """The class of a model, which is built on the meta device, or the error."""
    import torchvision

    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), torch.device("meta"):
            warnings.simplefilter("ignore")
            return type(torchvision.models.get_model(name, weights=None, **settings))
    except Exception as error:  # building the model states the reason
        return error
