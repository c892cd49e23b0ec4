"""Exit codes: 0, or one line on stderr and a code for the cause."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from functools import cache
from textwrap import shorten
from typing import Any

import typer
from typer.core import TyperGroup

from vitlab.core.errors import ExtensionError, VitlabError, reason_of
from vitlab.core.extensions import failed_in
from vitlab.core.machine_memory import is_allocation_failure
from vitlab.core.process import is_main_process

CODES = (
    "Exit codes: 0 success, 1 internal error or failed job, 2 invalid input, 130 interrupted. "
    "VITLAB_DEBUG=1 shows the traceback of an error."
)

_PATHS = ("--out", "-o", "--root", "--classes")

#: The usage error of typer; its module differs between versions.
_UsageError: type[Any] = typer.BadParameter.__bases__[0]


class Verbs(TyperGroup):
    """A group of commands that prints the message of an interrupt, which typer drops."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; an empty path, which would be read as the current folder, is an error."""
        for option, value in zip(args, [*args[1:], None], strict=True):
            name, equals, after = option.partition("=")
            if name in _PATHS and not ctx.resilient_parsing and (after if equals else value) == "":
                raise VitlabError(f"{name} is empty; expected a path, or '.' for the current folder")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            if is_main_process():
                _print_error(str(error) or "interrupted; finished work is stored, and the same command resumes")
            raise typer.Exit(130) from error


def run(app: typer.Typer) -> None:
    """Run a command line and exit. Internal errors keep their traceback, for bug reports.

    The environment variable VITLAB_DEBUG=1 shows the traceback of every error.
    """
    warnings.showwarning = lambda message, *_: _warn(" ".join(str(message).split()))
    try:
        sys.exit(app(standalone_mode=False))
    except Exception as error:
        message, code = _message(error), 1 if isinstance(error, ExtensionError) else 2
        if message is None and (failed := failed_in(error)):
            message, code = f"{failed} ({reason_of(error)}); VITLAB_DEBUG=1 shows the traceback", 1
        if message is None:
            raise
        if _debugging():
            for each in getattr(error, "failures", ()) or (error,):
                traceback.print_exception(each)
        _print_error(message)
        sys.exit(code)


def _debugging() -> bool:
    return os.environ.get("VITLAB_DEBUG", "0") not in ("", "0")


def _message(error: Exception) -> str | None:
    """The message for an error of the user's input, files or model; None for an internal error."""
    if isinstance(error, VitlabError):
        return str(error)
    if isinstance(error, _UsageError):
        usage: Any = error
        return str(usage.format_message()) + (f" See: {usage.ctx.command_path} --help" if usage.ctx else "")
    if isinstance(error, OSError) and error.filename is not None:  # a file of the user
        return f"{error.filename}: {error.strerror}"
    found = None
    if "torch" in sys.modules:  # a model may have been built
        from vitlab.adapters.failures import model_error

        found = model_error(error)
    if found is None and is_allocation_failure(error):
        return f"not enough memory ({_short(error)}); use fewer or smaller images, a smaller batch or a smaller model"
    return None if found is None else str(found)


def _short(error: Exception) -> str:
    """The first sentences of an error in one line."""
    return shorten(str(error), 200, placeholder=" …") or type(error).__name__


@cache
def _warn(message: str) -> None:
    """Print a warning in one line, without its source location, once; with the traceback of the error it is about."""
    if _debugging() and sys.exc_info()[1] is not None:
        traceback.print_exc()
    typer.echo(f"warning: {message}", err=True)


def _print_error(message: str) -> None:
    typer.echo(f"vitlab: {' '.join(message.split())}", err=True)
