"""The grammar of expressions: valid and invalid text, and that nothing is evaluated."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.core.errors import VitlabError
from vitlab.core.expressions import ModelExpression, PartCall, parse_call, parse_model, parse_part, split_calls

keys = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True).filter(lambda key: key.isidentifier() and _is_free(key))
plain = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
atoms = plain | st.sampled_from([" | ", "'", '"', "\\", "a' | 'b", "x\\' | ", "(", ")) | f("]) | st.binary(max_size=4)
literals = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
dictionaries = st.dictionaries(keys, literals, max_size=3)
names = st.from_regex(r"[A-Za-z0-9_.\-]{1,8}(/[a-z0-9:@]{1,4})?", fullmatch=True)
paths = st.text(st.sampled_from("ab/ .()|'\"\\=,~-é"), min_size=1, max_size=12)


def _is_free(key: str) -> bool:
    try:
        ast.parse(f"f({key}=1)")
    except SyntaxError:
        return False
    return key not in ("at", "blocks")


@st.composite
def parts(draw: st.DrawFn) -> PartCall:
    at = draw(st.none() | st.sampled_from(["mlp.out", "attn.in"]))
    blocks = draw(st.none() | st.sampled_from(["upper", "6:12", ":30%", [0, 3]]))
    return PartCall(draw(st.sampled_from(["ContextBroadcast", "Tap"])), draw(dictionaries), at, blocks)


@st.composite
def models(draw: st.DrawFn) -> ModelExpression:
    source = draw(st.sampled_from(["timm", "torchvision", "hf", "vitlab", "file"]))
    name = draw(paths if source == "file" else names)
    return ModelExpression(source, name, draw(dictionaries), tuple(draw(st.lists(parts(), max_size=2))))


@settings(deadline=None, max_examples=300)
@given(models())
def test_what_is_printed_is_read_back_as_it_was(expression: ModelExpression) -> None:
    assert parse_model(str(expression)) == expression


@settings(deadline=None, max_examples=50)
@given(parts())
def test_a_part_is_read_back_as_it_was(part: PartCall) -> None:
    assert parse_part(str(part)) == part


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=30) | st.text(st.sampled_from("timm/file ax|()='\",\\1[]{}_.*"), max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    for parse in (parse_model, parse_part, parse_call):
        for given_text in (text, f"timm/x({text})", f"file/'{text}'({text})"):
            try:
                parse(given_text)
            except VitlabError as error:
                assert len(str(error).splitlines()) == 1


def test_the_example_of_the_design() -> None:
    text = "timm/deit_tiny_patch16_224(pretrained=True) | ContextBroadcast(at='mlp.out', blocks='upper') | Tap"
    assert parse_model(text) == ModelExpression(
        "timm",
        "deit_tiny_patch16_224",
        {"pretrained": True},
        (PartCall("ContextBroadcast", {}, "mlp.out", "upper"), PartCall("Tap")),
    )


@pytest.mark.parametrize("space", ["", " ", "\n", "\t "])
def test_space_around_an_expression_is_left_out(space: str) -> None:
    assert parse_model(f"{space}timm/x (a = 1 ,){space}") == ModelExpression("timm", "x", {"a": 1})
    assert parse_part(f"{space}Tap(){space}") == PartCall("Tap")
    assert parse_call(f"{space}scenes{space}") == ("scenes", {})


@pytest.mark.parametrize(
    ("text", "value"),
    [("' | '", " | "), ('" | "', " | "), (r"'\' | '", "' | "), ("'\\\\'", "\\"), ("b' | '", b" | "), ("r' | '", " | ")],
)
def test_a_pipe_in_quotes_cuts_nothing(text: str, value: object) -> None:
    found = parse_model(f"timm/x(a={text}) | P(b={text})")
    assert found.settings == {"a": value} and found.parts == (PartCall("P", {"b": value}),)


@pytest.mark.parametrize(
    "path",
    ["runs/my run/m.safetensors", "a (1)/m(x=2).st", "a|b||c", "it's/m.st", "C:\\runs\\new", "a=b,c", "~/x", "/abs/m"],
)
def test_a_path_is_taken_as_it_stands(path: str) -> None:
    found = parse_model(f"file/{path} | P(at='mlp.out')")
    assert (found.name, found.settings, found.parts) == (path, {}, (PartCall("P", {}, "mlp.out"),))


def test_a_quoted_path_may_hold_what_would_cut_it_and_take_settings() -> None:
    found = parse_model("file/'a | b (1)/it\\'s'(x=2) | P")
    assert found == ModelExpression("file", "a | b (1)/it's", {"x": 2}, (PartCall("P"),))


@given(st.lists(st.tuples(keys, dictionaries), max_size=4))
@settings(max_examples=100)
def test_a_list_of_calls_is_split_into_what_it_was_joined_from(calls: list[tuple[str, dict[str, object]]]) -> None:
    """Whatever brackets, quotes and commas the literals hold: Python's own repr writes them."""
    written = [f"{name}({', '.join(f'{key}={value!r}' for key, value in taken.items())})" for name, taken in calls]
    assert split_calls(", ".join(written)) == written
    assert split_calls(",".join(written)) == written


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a(x=((1,2),(3,4)), y='p,q'), b", ["a(x=((1,2),(3,4)), y='p,q')", "b"]),
        ("a(x=[1, {'k': (2, 3)}]),b", ["a(x=[1, {'k': (2, 3)}])", "b"]),
        ("a(x=')'), b(y='(')", ["a(x=')')", "b(y='(')"]),
        (" a , ,b, ", ["a", "b"]),
        (" , ", []),
        ("a(x=1, b", ["a(x=1, b"]),
        ("a), b", ["a)", "b"]),
        ("a(x='p, b", ["a(x='p, b"]),
    ],
)
def test_commas_split_only_outside_brackets_and_quotes(text: str, pieces: list[str]) -> None:
    assert split_calls(text) == pieces


HOSTILE = [
    "__import__('os').system('true')",
    "timm/x(a=__import__('os'))",
    "timm/x(__import__('os'))",
    "timm/x(a=1) or __import__('os')",
    "timm/x(a=1)(b=2)",
    "timm/x(a=1); import os",
    "timm/x(**{'a': 1})",
    "timm/x(*[1])",
    "timm/x(a=().__class__.__base__)",
    "timm/x(a=[y for y in (1,)])",
    "timm/x(a=f'{1}')",
    "timm/x(a=lambda: 1)",
    "timm/x(a:=1)",
    "timm/x(a={[]: 1})",
    "timm/x(a=1 + 'a')",
    "timm/x(a='\x00')",
    "timm/x(a='\ud800')",
    "timm/x(a=" + "9" * 4000 + "e)",
    "timm/x(a=" + "(" * 4000 + ")",
    "timm/x(a=" + "(" * 190 + "1," + ")" * 190 + ")x",
    "timm/x(a=" + "-" * 4000 + "1)",
    "timm/x(a=" + "[" * 150 + "]" * 149 + ")",
    "timm/x | __import__('os')",
    "timm/x | os.system('true')",
    "timm/x | P(a=open('x'))",
    "timm/x | ",
    "timm/x | | P",
    "file/'open",
    "file/'a'b",
    "file/''",
    "timm/",
    "/x",
    "",
    "x",
    "nowhere/x",
    "timm/x(a=1",
    "timm/x)a=1(",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_or_malformed_text_is_one_line_and_runs_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("eval", "exec"):
        monkeypatch.setattr(builtins, name, lambda *_: pytest.fail("evaluated"))
    with pytest.raises(VitlabError) as caught:
        parse_model(text)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("parse", [parse_model, parse_part, parse_call])
def test_what_is_no_text_or_too_long_is_refused(parse: Callable[[str], object]) -> None:
    for text in ("timm/x(a='" + "y" * 1_000_000 + "')", "-" * 1_000_000, "timm/x" + " | P" * 300_000):
        with pytest.raises(VitlabError, match=r"has \d+ characters; expected at most 4096"):
            parse(text)
    for thing in (None, 3, b"timm/x", ["timm/x"]):
        with pytest.raises(VitlabError, match="must be text, for example .*; got"):
            parse(thing)


@pytest.mark.parametrize("text", ["timm/x(a=1, a=2)", "timm/x | P(at='mlp.in', at='mlp.out')", "file/'p'(a=1, a=1)"])
def test_a_setting_given_twice_is_named(text: str) -> None:
    with pytest.raises(VitlabError, match="'(a|at)' is given twice in") as caught:
        parse_model(text)
    assert len(str(caught.value).splitlines()) == 1


def test_errors_name_the_choices() -> None:
    with pytest.raises(VitlabError, match=r"no model source 'tim' \(did you mean 'timm'\?\); there are: timm, torchv"):
        parse_model("tim/x")
    with pytest.raises(VitlabError, match="one of the sources timm, torchvision, hf, vitlab, file, for example"):
        parse_model("vit_tiny_patch16_224")
    with pytest.raises(VitlabError, match="invalid at=3 in .*; expected the name of a seam"):
        parse_part("P(at=3)")
    with pytest.raises(VitlabError, match="not a literal; expected numbers, strings"):
        parse_call("f(a=b)")


def test_bytes_behind_a_quoted_path_hide_no_part() -> None:
    found = parse_model("file/'='(key=b'') | ContextBroadcast(blocks='upper')")
    assert (found.name, found.settings, len(found.parts)) == ("=", {"key": b""}, 1)
