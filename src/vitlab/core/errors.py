"""The exception for invalid input by the user."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class VitlabError(ValueError):
    """Invalid input: one line with what was given, what was expected and what to do."""


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
