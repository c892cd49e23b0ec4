"""Errors for unknown names: one line with the given name, the closest choice and all choices."""

from __future__ import annotations

import pickle

import pytest

import vitlab
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


@pytest.mark.parametrize(
    "value", ["x" * 70_000, "two words " * 7_000, "it's " * 14_000, "a\\'" * 20_000, list(range(10_000))]
)
def test_long_values_are_cut(value: object) -> None:
    text = str(unknown("part", value, ["A", "B"]))
    assert len(text) < 200 and f"… ({len(repr(value)):,} characters)" in text
    assert text.startswith(f"no part {value!r}"[:80]) and text.endswith("; there are: A, B")


def test_line_breaks_are_escaped_and_the_tree_is_kept() -> None:
    error = VitlabError("no folder a\nb\r; expected:", "  ROOT/train\n  ROOT/test")
    assert str(error) == "no folder a\\nb\\r; expected:\n  ROOT/train\n  ROOT/test"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    wrapped = str(VitlabError(f"the data cannot be read ({error})"))
    assert wrapped == "the data cannot be read (no folder a\\nb\\r; expected: ROOT/train ROOT/test)"


def test_paths_of_any_text_and_wrong_types_are_one_line() -> None:
    """From Python: a path that is too long, a path with a line break, and values of other types."""
    model = vitlab.load("timm/test_vit")
    for attempt, message in (
        (lambda: vitlab.batches_for(model, "./" + "x" * 70_000), "File name too long"),
        (lambda: vitlab.batches_for(model, "folder('~nobody_here/photos')"), "Could not determine home directory"),
        (lambda: vitlab.batches_for(model, "cifar10", root="~nobody_here"), "Could not determine home directory"),
        (lambda: vitlab.load("file/a\nb"), r"there is no file a\\nb"),
        (lambda: vitlab.report(["x"], "report.html"), "expected measurements"),
        (lambda: vitlab.batches_for(model, "scenes(test=4)", preprocessing="x"), "expected a Preprocessing"),
    ):
        with pytest.raises(VitlabError, match=message) as raised:
            attempt()
        assert len(str(raised.value).splitlines()) == 1 and len(str(raised.value)) < 300
