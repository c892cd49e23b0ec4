"""The exception for invalid input by the user."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_SHOWN = 80  # characters that are shown of a long value
_LONGEST = 300  # characters of the reason of an error of other code
# Text in quotes, a list, or text without spaces.
_LONG = re.compile(
    r"""(?<!\w)'(?:[^'\\]|\\.){300,}'|(?<!\w)"(?:[^"\\]|\\.){300,}"|\[[^]]{300,}\]|\S{300,}""", re.DOTALL
)


class VitlabError(ValueError):
    """Invalid input: one line with what was given, what was expected and what to do.

    Values in the line are shortened, and line breaks in them, as of a path, are written as `\\n`.

    Args:
        message: the line.
        tree: lines to show below it, such as an expected layout of folders.

    >>> str(VitlabError("there is no file a\\nb")), str(VitlabError(f"no part {'x' * 70_000!r}"))[-22:]
    ('there is no file a\\\\nb', 'x… (70,002 characters)')
    """

    def __init__(self, message: str = "", tree: str = "") -> None:
        super().__init__(*filter(None, (message, tree)))

    def __str__(self) -> str:
        line, *tree = map(str, self.args or ("",))
        shortened = _LONG.sub(lambda found: f"{found[0][:_SHOWN]}… ({len(found[0]):,} characters)", line)
        return "\n".join([re.sub(r"\s*\n\s+", " ", shortened).replace("\n", "\\n").replace("\r", "\\r"), *tree])


class ExtensionError(VitlabError):
    """Code of an extension failed, or returned an object of the wrong type; what does not need it can continue.

    Args:
        message: one line with the name and the origin of the extension.
        failures: the errors that this one summarises, each with its traceback.
    """

    def __init__(self, message: str, failures: Sequence[Exception] = ()) -> None:
        super().__init__(message)
        self.failures = tuple(failures)


def reason_of(error: BaseException) -> str:
    """Returns what an exception of other code says, in one line, with its type; the message of a `VitlabError` alone.

    >>> reason_of(KeyError("layer")), reason_of(VitlabError("there is no file x"))
    ("KeyError: 'layer'", 'there is no file x')
    """
    if isinstance(error, VitlabError):
        return str(error)
    text = " ".join(str(error).split())
    shortened = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
    return f"{type(error).__name__}: {shortened}" if text else type(error).__name__


def unknown(kind: str, given: object, choices: Iterable[str]) -> VitlabError:
    """Returns the error for an unknown name, with the closest valid name.

    >>> str(unknown("seam", "mlp.ouT", ["mlp.in", "mlp.out"]))
    "no seam 'mlp.ouT' (did you mean 'mlp.out'?); there are: mlp.in, mlp.out"
    >>> str(unknown("part", "x", []))
    "no part 'x'; there are none"
    """
    names = list(choices)
    folded = {name.lower(): name for name in names}
    near = get_close_matches(str(given).lower(), folded, n=1)
    hint = f" (did you mean {folded[near[0]]!r}?)" if near else ""
    there = f"there are: {', '.join(names)}" if names else "there are none"
    return VitlabError(f"no {kind} {given!r}{hint}; {there}")
