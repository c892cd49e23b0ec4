"""Values and annotations: whether a value fits, and what is expected in words.

Lists are accepted as tuples, and integers as floats. True is not accepted as a number, and numbers must be finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from vitlab.core.bounds import Choices, Length, Range

_SHOWN = 80  # characters of a value in an error
_WORDS: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    bool: "True or False",
    str: "text in quotes",
    NoneType: "None",
}


def fits(value: Any, annotation: Any) -> bool:
    """Returns whether a value matches an annotation; annotations that are not supported match every value.

    >>> fits([1, 2], tuple[int, int]), fits(True, int), fits(float("nan"), float), fits(1, float | None)
    (True, False, False, True)
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return (
            not _is_too_long(value, annotation)
            and fits(value, arguments[0])
            and all(value in bound for bound in _bounds(annotation))
        )
    if origin in (Union, UnionType):
        return any(fits(value, each) for each in arguments)
    if origin is Literal:
        return value in Choices(arguments)
    if _is_list(annotation):
        values = _values(value)
        return values is not None and all(fits(each, arguments[0]) for each in values)
    if origin is tuple:
        values = _values(value)
        return values is not None and len(values) == len(arguments) and all(map(fits, values, arguments))
    plain: Any = NoneType if annotation is None else origin or annotation
    return _is(value, plain) if isinstance(plain, type) else True


def words(annotation: Any) -> str:
    """Describe an annotation.

    >>> words(Annotated[int, Range(1, 5)] | None), words(Annotated[Sequence[float], Length(1, 3)])
    ('an integer from 1 to 5, or None', 'a list of 1 to 3 values, each a number')
    >>> words(float | Annotated[Sequence[float], Length(1, 3)])
    'a number, or a list of 1 to 3 such values'
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = _bounds(annotation)
        if any(isinstance(bound, Choices) for bound in bounds):
            return str(next(bound for bound in bounds if isinstance(bound, Choices)))
        if _is_list(arguments[0]) and bounds:
            return f"a list of {bounds[0]}, each {words(get_args(arguments[0])[0])}"
        return " ".join([words(arguments[0]), *map(str, bounds)])
    if origin in (Union, UnionType):
        return ", or ".join(dict.fromkeys(_of_such(each, arguments) or words(each) for each in arguments))
    if origin is Literal:
        return str(Choices(arguments))
    if _is_list(annotation):
        return f"a list, each {words(arguments[0])}"
    if origin is tuple:
        return f"({', '.join(map(words, arguments))})"
    plain: Any = origin or annotation
    return _WORDS.get(plain, "any value" if plain is Any else f"a {_name(plain)}")


def _of_such(annotation: Any, others: Sequence[Any]) -> str:
    """Describe a list of values that are also accepted alone; empty for other annotations."""
    if get_origin(annotation) is not Annotated or not _is_list(get_args(annotation)[0]):
        return ""
    length = next((bound for bound in _bounds(annotation) if isinstance(bound, Length)), None)
    same = get_args(get_args(annotation)[0])[0] in others
    return f"a list of {length.words('such values')}" if same and length is not None else ""


def hint(value: Any, annotation: Any) -> str:
    """The cost of a value that is too large, or the choice that is most like it; empty without either."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        if _is_too_long(value, annotation):
            return ""
        if not fits(value, arguments[0]):
            return hint(value, arguments[0])
        return next((bound.hint(value) for bound in _bounds(annotation) if value not in bound), "")
    if origin in (Union, UnionType):
        return next(filter(None, (hint(value, each) for each in arguments)), "")
    if origin is Literal:
        return Choices(arguments).hint(value)
    if _is_list(annotation):
        wrong = (each for each in _values(value) or () if not fits(each, arguments[0]))
        return next((hint(each, arguments[0]) for each in wrong), "")
    return ""


def convert(value: Any, annotation: Any) -> Any:
    """Returns a value that fits in the declared type: integers as floats, lists and arrays as tuples.

    >>> convert(1, float), convert([1, 2], tuple[float, ...])
    (1.0, (1.0, 2.0))
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return convert(value, arguments[0])
    if origin in (Union, UnionType):
        return convert(value, next(each for each in arguments if fits(value, each)))
    if _is_list(annotation):
        return tuple(convert(each, arguments[0]) for each in _values(value) or ())
    if origin is tuple:
        return tuple(map(convert, _values(value) or (), arguments))
    return float(value) if annotation is float else value


def type_name(annotation: Any) -> str:
    """The types of an annotation, without bounds.

    >>> type_name(Annotated[int, Range(1, 5)] | None), type_name(tuple[float, ...]), type_name(Literal["a", "b"])
    ('int | None', 'list[float]', 'str')
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(arguments[0])
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(map(type_name, arguments)))
    if origin is Literal:
        return " | ".join(dict.fromkeys(type(each).__name__ for each in arguments))
    if _is_list(annotation):
        return f"list[{type_name(arguments[0])}]"
    if origin is tuple:
        return f"({', '.join(map(type_name, arguments))})"
    return "" if annotation is Any else _name(origin or annotation)


def range_name(annotation: Any) -> str:
    """The bounds of an annotation.

    >>> range_name(Annotated[int, Range(1, 5)] | None), range_name(Literal["a", "b"])
    ('1 to 5', "'a' or 'b'")
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [str(bound).removeprefix("from ").removeprefix("of ") for bound in _bounds(annotation)]
        return ", ".join(filter(None, [*bounds, range_name(arguments[0])]))
    if origin in (Union, UnionType):
        return "; ".join(dict.fromkeys(filter(None, map(range_name, arguments))))
    if origin is Literal:
        return str(Choices(arguments))
    if _is_list(annotation):
        return f"each {range_name(arguments[0])}" if range_name(arguments[0]) else ""
    return ", ".join(dict.fromkeys(filter(None, map(range_name, arguments)))) if origin is tuple else ""


def choices(annotation: Any) -> list[Any]:
    """The values that an annotation lists, for shell completion.

    >>> choices(Literal["a", "b"] | None), choices(bool), choices(int)
    (['a', 'b', None], [True, False], [])
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        listed = [each for bound in _bounds(annotation) if isinstance(bound, Choices) for each in bound.values]
        return listed or choices(arguments[0])
    if origin in (Union, UnionType):
        return [choice for each in arguments for choice in choices(each)]
    if origin is Literal:
        return list(arguments)
    return [True, False] if annotation is bool else [None] if annotation is NoneType else []


def shown(value: Any) -> str:
    """A value in an error: one line, shortened.

    >>> shown("a" * 100)[-5:], shown(10**5000)
    ('aaa …', 'an integer of more than 4,300 digits')
    """
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python converts no longer integers to text
        return "an integer of more than 4,300 digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def _is(value: Any, kind: type) -> bool:
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if kind is float:
        known = isinstance(value, float | Integral) or hasattr(value, "item")  # torch takes no other numbers
        return isinstance(value, Real) and known and not isinstance(value, bool) and _is_finite(value)
    if kind is Iterable and (isinstance(value, str) or getattr(value, "ndim", 1) == 0):
        return False
    if kind is str:
        return isinstance(value, str) and "\0" not in value  # no path has it
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol that cannot be checked
        return True


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer larger than any float
        return False


def _is_list(annotation: Any) -> bool:
    """Whether an annotation is a list of any length."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    any_length = origin in (list, Sequence) and arguments != ()
    return any_length or (origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis)


def _is_too_long(value: Any, annotation: Any) -> bool:
    """Whether a list has too many values; this is seen without reading them, as of `range(10**12)`."""
    values = _values(value)
    limits = [bound.high for bound in _bounds(annotation) if isinstance(bound, Length) and bound.high is not None]
    return values is not None and any(values[limit : limit + 1] for limit in limits)


def _values(value: Any) -> Sequence[Any] | None:
    """The values of a list, tuple, range or one-dimensional array; None for others."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        return None
    if getattr(value, "ndim", 0) == 1 and hasattr(value, "tolist"):
        listed: list[Any] = value.tolist()
        return listed
    return value if isinstance(value, Sequence) else None


def _bounds(annotation: Any) -> list[Any]:
    return [each for each in get_args(annotation)[1:] if isinstance(each, Range | Choices | Length)]


def _name(kind: Any) -> str:
    return {NoneType: "None", Mapping: "dict", Callable: "function"}.get(kind, getattr(kind, "__name__", str(kind)))
