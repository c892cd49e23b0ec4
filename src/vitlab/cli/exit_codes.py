"""How a command ends: 0, or one line on stderr and a code that says whose fault it was."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from typing import Any

import typer
from typer.core import TyperGroup

from vitlab.core.errors import VitlabError
from vitlab.core.process import is_main_process

CODES = "Exit codes: 0 done, 1 an error of vitlab itself, 2 a mistake in what was asked, 130 interrupted."

#: What typer raises where it cannot read the command line; the module that it comes from differs between versions.
_Unreadable: type[Any] = typer.BadParameter.__bases__[0]


class Verbs(TyperGroup):
    """The verbs of a command line; an interrupt says what became of the work, which typer by itself would drop."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            if is_main_process():
                _say(str(error) or "interrupted; what was finished is kept, and the same command goes on from there")
            raise typer.Exit(130) from error


def run(app: typer.Typer) -> None:
    """Run a command line and exit; errors of our own keep their traceback, which is what a report of one needs."""
    warnings.showwarning = lambda message, *_: _warn(" ".join(str(message).split()))
    try:
        sys.exit(app(standalone_mode=False))
    except VitlabError as error:
        _say(str(error))
    except _Unreadable as error:
        _say(f"{error.format_message()} See: {error.ctx.command_path} --help" if error.ctx else error.format_message())
    except OSError as error:
        if error.filename is None:  # no file that the user could have named
            raise
        _say(f"{error.filename}: {error.strerror}")
    sys.exit(2)


@cache
def _warn(message: str) -> None:
    """A warning in one line, without the place in the source that it comes from, and only once."""
    typer.echo(f"warning: {message}", err=True)


def _say(message: str) -> None:
    typer.echo(f"vitlab: {' '.join(message.split())}", err=True)
