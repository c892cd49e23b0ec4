"""Exit codes, and one line for each error."""

from __future__ import annotations

import errno

import pytest
import torch
import typer
from torch import Tensor, nn

from vitlab.cli import exit_codes
from vitlab.core.errors import VitlabError

app = typer.Typer(cls=exit_codes.Verbs, pretty_exceptions_enable=False, rich_markup_mode=None)
RAISES: dict[str, BaseException] = {
    "mistake": VitlabError("no part 'x';", "there are none"),
    "missing": FileNotFoundError(errno.ENOENT, "No such file or directory", "data/x"),
    "stopped": KeyboardInterrupt("stopped at step 7"),
    "stopped-in-silence": KeyboardInterrupt(),
    "broken": ZeroDivisionError("ours"),
    "pipe": OSError("no file at all"),
    "memory": MemoryError(),
    "allocator": RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"),
}


@app.command()
def fail(how: str = "", count: int = 0, out: str = "runs") -> None:
    """Exit in the given way."""
    if how:
        raise RAISES[how]


@app.command()
def other() -> None:
    """Make it a group."""


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fail"], 0, ""),
        (["fail", "--how", "mistake"], 2, "vitlab: no part 'x'; there are none\n"),
        (["fail", "--how", "missing"], 2, "vitlab: data/x: No such file or directory\n"),
        (["fail", "--how", "memory"], 2, "vitlab: not enough memory (MemoryError); use fewer or smaller images"),
        (["fail", "--how", "allocator"], 2, "can't allocate memory: 9 bytes); use fewer or smaller images"),
        (["fail", "--out", ""], 2, "vitlab: --out is empty; expected a path, or '.' for the current folder\n"),
        (["fail", "--out="], 2, "vitlab: --out is empty; expected a path"),
        (["fail", "--out", "."], 0, ""),
        (["fail", "--how", "stopped"], 130, "vitlab: stopped at step 7\n"),
        (["fail", "--how", "stopped-in-silence"], 130, "the same command resumes\n"),
        (["fail", "--cuont", "3"], 2, "--count"),
        (["fail", "--count", "many"], 2, "'--count'"),
        (["fial"], 2, "'fail'"),
    ],
)
def test_codes(arguments: list[str], code: int, message: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["vitlab", *arguments])
    with pytest.raises(SystemExit) as caught:
        exit_codes.run(app)
    assert (caught.value.code or 0) == code
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == (code != 0)


class Attention(nn.Module):
    """Fails on images of an odd size."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] % 2:
            raise RuntimeError("odd\nsize")
        return x


class Foreign(nn.Sequential):
    """A model of another library."""


@app.command()
def apply(size: int) -> None:
    """Run a model."""
    Foreign(nn.Identity(), nn.Sequential(Attention()))(torch.zeros(1, size))


def test_an_error_of_a_model_is_one_line_with_the_module(capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["vitlab", "apply", "3"])
    monkeypatch.delenv("VITLAB_DEBUG", raising=False)
    with pytest.raises(SystemExit) as caught:
        exit_codes.run(app)
    message = capsys.readouterr().err
    assert caught.value.code == 2 and message.count("\n") == 1
    assert message.startswith(
        "vitlab: Foreign failed in 1.0 (RuntimeError: odd size); check its settings, the image size"
    )


@pytest.mark.parametrize(
    ("arguments", "raised"), [(["apply", "3"], "RuntimeError: odd"), (["fail", "--how", "mistake"], "no part 'x';")]
)
def test_the_debug_variable_shows_the_traceback(arguments: list[str], raised: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["vitlab", *arguments])
    for value, shown in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("VITLAB_DEBUG", value)
        with pytest.raises(SystemExit):
            exit_codes.run(app)
        message = capsys.readouterr().err
        assert ("Traceback" in message and raised in message) == shown
        assert message.splitlines()[-1].startswith("vitlab: ")


@pytest.mark.parametrize("how", ["broken", "pipe"])
def test_our_own_errors_keep_their_traceback(how: str, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["vitlab", "fail", "--how", how])
    with pytest.raises(type(RAISES[how]), match=str(RAISES[how])):
        exit_codes.run(app)
