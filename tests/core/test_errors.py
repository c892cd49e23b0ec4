"""Errors for unknown names: one line with the given name, the closest choice and all choices."""

from __future__ import annotations

import pytest

from vitlab.core.errors import VitlabError, unknown


def test_it_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no seam 'x'"):
        raise unknown("seam", "x", ["mlp.in"])


@pytest.mark.parametrize(
    ("given", "near"),
    [("contextbroadcast", "ContextBroadcast"), ("ContextBroadcst", "ContextBroadcast"), ("zzz", None)],
)
def test_the_closest_name_is_suggested_in_any_case(given: str, near: str | None) -> None:
    text = str(unknown("part", given, ["TokenAwarePooling", "ContextBroadcast"]))
    assert text.endswith("there are: TokenAwarePooling, ContextBroadcast")
    assert (f"did you mean {near!r}?" in text) if near else ("did you mean" not in text)


@pytest.mark.parametrize("given", ["two\nlines", None, 3, ("a", "b"), "\x00"])
def test_any_value_gives_a_one_line_error(given: object) -> None:
    error = unknown("part", given, iter(["A", "B"]))
    assert isinstance(error, VitlabError)
    assert str(error) == f"no part {given!r}; there are: A, B"
    assert len(str(error).splitlines()) == 1
