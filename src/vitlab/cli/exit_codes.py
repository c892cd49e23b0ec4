"""Exit codes: 0, or one line on stderr and a code for the cause."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from typing import Any

import typer
from typer.core import TyperGroup

from vitlab.core.errors import VitlabError
from vitlab.core.process import is_main_process

CODES = "Exit codes: 0 success, 1 internal error or failed job, 2 invalid input, 130 interrupted."

#: The usage error of typer; its module differs between versions.
_UsageError: type[Any] = typer.BadParameter.__bases__[0]


class Verbs(TyperGroup):
    """A group of commands that prints the message of an interrupt, which typer drops."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            if is_main_process():
                _print_error(str(error) or "interrupted; finished work is stored, and the same command resumes")
            raise typer.Exit(130) from error


def run(app: typer.Typer) -> None:
    """Run a command line and exit. Internal errors keep their traceback, for bug reports."""
    warnings.showwarning = lambda message, *_: _warn(" ".join(str(message).split()))
    try:
        sys.exit(app(standalone_mode=False))
    except VitlabError as error:
        _print_error(str(error))
    except _UsageError as error:
        hint = f" See: {error.ctx.command_path} --help" if error.ctx else ""
        _print_error(error.format_message() + hint)
    except OSError as error:
        if error.filename is None:  # not a file of the user
            raise
        _print_error(f"{error.filename}: {error.strerror}")
    sys.exit(2)


@cache
def _warn(message: str) -> None:
    """Print a warning in one line, without its source location, once."""
    typer.echo(f"warning: {message}", err=True)


def _print_error(message: str) -> None:
    typer.echo(f"vitlab: {' '.join(message.split())}", err=True)
