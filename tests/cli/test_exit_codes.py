"""Exit codes, and one line for each error."""

from __future__ import annotations

import errno

import pytest
import typer

from vitlab.cli import exit_codes
from vitlab.core.errors import VitlabError

app = typer.Typer(cls=exit_codes.Verbs, pretty_exceptions_enable=False, rich_markup_mode=None)
RAISES: dict[str, BaseException] = {
    "mistake": VitlabError("no part 'x';\nthere are none"),
    "missing": FileNotFoundError(errno.ENOENT, "No such file or directory", "data/x"),
    "stopped": KeyboardInterrupt("stopped at step 7"),
    "stopped-in-silence": KeyboardInterrupt(),
    "broken": ZeroDivisionError("ours"),
    "pipe": OSError("no file at all"),
}


@app.command()
def fail(how: str = "", count: int = 0) -> None:
    """End in one way or another."""
    if how:
        raise RAISES[how]


@app.command()
def other() -> None:
    """Make it a group."""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["fail"], 0, ""),
        (["fail", "--how", "mistake"], 2, "vitlab: no part 'x'; there are none\n"),
        (["fail", "--how", "missing"], 2, "vitlab: data/x: No such file or directory\n"),
        (["fail", "--how", "stopped"], 130, "vitlab: stopped at step 7\n"),
        (["fail", "--how", "stopped-in-silence"], 130, "the same command resumes\n"),
        (["fail", "--cuont", "3"], 2, "--count"),
        (["fail", "--count", "many"], 2, "'--count'"),
        (["fial"], 2, "'fail'"),
    ],
)
def test_codes(arguments: list[str], code: int, said: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["vitlab", *arguments])
    with pytest.raises(SystemExit) as caught:
        exit_codes.run(app)
    assert (caught.value.code or 0) == code
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == (code != 0)


@pytest.mark.parametrize("how", ["broken", "pipe"])
def test_our_own_errors_keep_their_traceback(how: str, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["vitlab", "fail", "--how", how])
    with pytest.raises(type(RAISES[how]), match=str(RAISES[how])):
        exit_codes.run(app)
