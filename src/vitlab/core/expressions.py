"""Parser for model expressions: a model and the parts to insert, as one line of text.

    source/name[(key=literal, ...)] ( | Part(key=literal, ...))*

The text in parentheses is parsed with `ast` and may contain literals only; nothing is evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vitlab.core.errors import VitlabError, unknown

SOURCES = ("timm", "torchvision", "hf", "vitlab", "file")
_MAX_LENGTH = 4096  # characters; protects the parser against deep nesting


@dataclass(frozen=True)
class PartCall:
    """A part by name, its settings, and where it is inserted; None for the default of the part."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    at: str | None = None
    blocks: str | list[int] | None = None

    def __str__(self) -> str:
        places = {key: value for key, value in (("at", self.at), ("blocks", self.blocks)) if value is not None}
        return call_text(self.name, {**self.settings, **places})


@dataclass(frozen=True)
class ModelExpression:
    """A model by source and name, its settings, and the parts to insert, in order."""

    source: str
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[PartCall, ...] = ()

    def __str__(self) -> str:
        name = repr(self.name) if self.source == "file" else self.name
        head = f"{self.source}/{name}" + (call_text("", self.settings) if self.settings else "")
        return " | ".join([head, *map(str, self.parts)])


def parse_model(text: str) -> ModelExpression:
    """Parse a model expression.

    >>> e = parse_model("timm/deit_tiny_patch16_224(pretrained=True) | ContextBroadcast(at='mlp.out', blocks='upper')")
    >>> e.source, e.name, dict(e.settings)
    ('timm', 'deit_tiny_patch16_224', {'pretrained': True})
    >>> e.parts[0].name, e.parts[0].at, e.parts[0].blocks
    ('ContextBroadcast', 'mlp.out', 'upper')
    >>> str(e) == str(parse_model(str(e)))
    True
    >>> parse_model("file/runs/best (1)/model.safetensors").name
    'runs/best (1)/model.safetensors'
    """
    head, *parts = _split(_checked(text, "a model expression", "timm/vit_tiny_patch16_224"))
    source, slash, rest = head.partition("/")
    if not slash or not rest.strip():
        raise VitlabError(
            f"invalid model expression {head!r}; expected source/name with one of the sources {', '.join(SOURCES)}, "
            "for example 'timm/vit_tiny_patch16_224'"
        )
    if source not in SOURCES:
        raise unknown("model source", source, SOURCES)
    if source == "file":
        name, settings = _file_name(rest.strip())
    else:
        name, settings = _name_and_settings(rest)
    return ModelExpression(source, name, settings, tuple(parse_part(part) for part in parts))


def parse_part(text: str) -> PartCall:
    """Parse the call of a part; the names `at` and `blocks` are reserved.

    >>> parse_part("TokenAwarePooling(branches=4, at='attn.in')")
    PartCall(name='TokenAwarePooling', settings={'branches': 4}, at='attn.in', blocks=None)
    """
    text = _checked(text, "a part", "ContextBroadcast(at='mlp.out')")
    name, settings = _name_and_settings(text)
    if not name.isidentifier():
        raise VitlabError(f"invalid part {text!r}; expected Name or Name(key=value), for example ContextBroadcast()")
    at, blocks = settings.pop("at", None), settings.pop("blocks", None)
    if at is not None and not isinstance(at, str):
        raise VitlabError(f"invalid at={at!r} in {text!r}; expected the name of a seam, for example 'mlp.out'")
    return PartCall(name, settings, at, blocks)


def parse_call(text: str, first: str = "") -> tuple[str, dict[str, Any]]:
    """Parse a name with optional settings, for example a data expression.

    Args:
        text: for example `cifar100(fraction=0.1)`.
        first: name of the setting that may be given first without a name; by default all must be written key=value.

    >>> parse_call("cifar100(fraction=0.1)")
    ('cifar100', {'fraction': 0.1})
    >>> parse_call("scenes")
    ('scenes', {})
    >>> parse_call("folder('/x')", first="path")
    ('folder', {'path': '/x'})
    """
    return _name_and_settings(_checked(text, "an expression", "name(key=value)"), first)


def call_text(name: str, settings: Mapping[str, Any]) -> str:
    """Returns the text that `parse_call` reads.

    >>> call_text("cifar100", {"fraction": 0.1, "classes": ["cat"]})
    "cifar100(fraction=0.1, classes=['cat'])"
    """
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in settings.items())})"


def split_calls(text: str) -> list[str]:
    """Split a list of names with optional settings at the commas outside brackets and quotes.

    >>> split_calls("a(x=((1, 2), (3, 4)), y='p,q'), b")
    ["a(x=((1, 2), (3, 4)), y='p,q')", 'b']
    """
    pieces: list[str] = []
    start, closed, depth = 0, -1, 0
    for i, letter in enumerate(text):
        if i <= closed:
            continue
        if letter in "'\"":
            closed = _closing(text, i)
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth <= 0:
            pieces.append(text[start:i])
            start = i + 1
    return [piece.strip() for piece in [*pieces, text[start:]] if piece.strip()]


def _checked(text: str, what: str, example: str) -> str:
    """Returns the stripped text; raises an error if it is not text or too long."""
    if not isinstance(text, str):
        raise VitlabError(f"{what} must be text, for example {example!r}; got {type(text).__name__}")
    if len(text) > _MAX_LENGTH:
        raise VitlabError(f"{what} has {len(text)} characters; expected at most {_MAX_LENGTH}")
    return text.strip()


def _split(text: str) -> list[str]:
    """Split at ` | ` outside quotes."""
    pieces: list[str] = []
    start, closed = 0, -1
    for i, letter in enumerate(text):
        if i <= closed:
            continue
        in_path = not pieces and text.startswith("file/") and text[5:6] not in ("'", '"')
        if letter in "'\"" and not (in_path and text[i - 1].isalnum()):  # an apostrophe inside a path is not a quote
            closed = _closing(text, i)
        elif letter == "|" and text[i - 1 : i + 2] == " | ":
            pieces.append(text[start:i])
            start = i + 1
    return [piece.strip() for piece in [*pieces, text[start:]]]


def _closing(text: str, opening: int) -> int:
    """Returns the index of the quote that closes the one at `opening` (escapes are skipped); -1 if there is none."""
    match = _QUOTED.match(text, opening)
    return match.end() - 1 if match else -1


_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_HEAD = re.compile(r"^(?P<name>[\w.\-/:@]+)\s*(?:\((?P<inside>.*)\))?$", re.DOTALL)


def _name_and_settings(text: str, first: str = "") -> tuple[str, dict[str, Any]]:
    match = _HEAD.match(text)
    if match is None:
        raise VitlabError(f"cannot read {text!r}; expected name or name(key=value, ...) with literal values")
    return match["name"], _literals(match["inside"] or "", text, first)


def _file_name(rest: str) -> tuple[str, dict[str, Any]]:
    """Parse an unquoted path, or a quoted path with optional settings."""
    if rest[0] not in "'\"":
        return rest, {}
    end = _closing(rest, 0)
    if end < 0:
        raise VitlabError(f"the quote in {'file/' + rest!r} is not closed; write file/'PATH'")
    after = rest[end + 1 :].strip()
    if after and not (after.startswith("(") and after.endswith(")")):
        raise VitlabError(f"cannot read {after!r} after the path {rest[: end + 1]!r}; write file/'PATH'(key=value)")
    name = _literals(f"path={rest[: end + 1]}", rest)["path"]
    if not name:
        raise VitlabError("the path after file/ is empty; write file/PATH or file/'PATH'")
    return name, _literals(after[1:-1], rest)


def _literals(inside: str, text: str, first: str = "") -> dict[str, Any]:
    """Parse `key=literal, ...` with `ast`, without evaluation; `first` is the name of a first value without a key."""
    try:
        call = ast.parse(f"f({inside}\n)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise VitlabError(f"cannot read the settings of {text!r}; write key=value, ... with literal values") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise VitlabError(f"cannot read the settings of {text!r}; write key=value, ... with literal values")
    if first and len(call.args) == 1:
        call.keywords.insert(0, ast.keyword(first, call.args.pop()))
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        raise VitlabError(f"the settings of {text!r} must all be written key=value")
    settings: dict[str, Any] = {}
    for keyword in call.keywords:
        assert keyword.arg is not None
        if keyword.arg in settings:
            raise VitlabError(f"setting {keyword.arg!r} is given twice in {text!r}; remove one")
        try:
            settings[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, RecursionError, MemoryError):
            raise VitlabError(
                f"the value of {keyword.arg!r} in {text!r} is not a literal; expected numbers, strings, True, False, "
                "None, or lists, tuples and dicts of them"
            ) from None
    return settings
