"""One-line errors for what a model, its adapter or an extension raises, with what failed, read from the traceback."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import FrameType

import torch
from torch import nn

from vitlab.adapters.wrappers import unwrap
from vitlab.core.descriptions import origins
from vitlab.core.errors import ExtensionError, VitlabError, reason_of
from vitlab.core.extensions import failed_in
from vitlab.core.machine_memory import is_allocation_failure

_ADAPTERS = Path(__file__).parent
_MISSING = re.compile(r"forward\(\) missing \d+ required (?:positional|keyword-only) arguments?: (.*)")


def adapter_error(model: nn.Module, error: Exception) -> VitlabError:
    """The error for a model whose adapter raised an exception.

    Args:
        model: the model that was described.
        error: the exception, with its traceback.
    """
    if failed := failed_in(error):
        return ExtensionError(
            f"{_name(model)} cannot be described: {failed} ({reason_of(error)}); VITLAB_DEBUG=1 shows the traceback"
        )
    place = _innermost(_frames(error), model, all_locals=True)
    at = f", at {place}" if place else ""
    return VitlabError(
        f"{_name(model)} cannot be described{at} ({reason_of(error)}); its structure differs from that of the models "
        "of its adapter; write an adapter for it, see docs/adding.md; VITLAB_DEBUG=1 shows the traceback"
    )


@contextmanager
def model_errors_in_one_line() -> Iterator[None]:
    """Replace what a model or its adapter raises inside the block by `model_error`; other errors are unchanged."""
    try:
        yield
    except VitlabError:
        raise
    except Exception as error:
        found = model_error(error)
        if found is None:
            raise
        raise found from error


@contextmanager
def measuring_errors_in_one_line(kind: str, names: Sequence[str]) -> Iterator[None]:
    """Replace what instruments or stress tests of extensions raise inside the block by one line with name and origin.

    Errors of vitlab's own are treated as by `model_errors_in_one_line`.

    Args:
        kind: `instruments` or `stress_tests`.
        names: those that are measured.
    """
    added = origins([(kind, name) for name in names])
    if not added:
        with model_errors_in_one_line():
            yield
        return
    try:
        yield
    except (Exception, SystemExit) as error:  # code of others
        one = kind.removesuffix("s").replace("_", " ")
        who = ", ".join(f"{one} {name!r} of {origin}" for name, origin in added.items())
        hint = "" if isinstance(error, VitlabError) else "; VITLAB_DEBUG=1 shows the traceback"
        raise ExtensionError(f"{who} failed: {reason_of(error)}{hint}") from error


def model_error(error: Exception) -> VitlabError | None:
    """The error for an exception that was raised while a model or adapter was running; None if none was."""
    frames = _frames(error)
    running = [frame.f_locals["self"] for frame in frames if isinstance(frame.f_locals.get("self"), nn.Module)]
    if running:
        model = unwrap(running[0])
        place = _innermost(frames, model, all_locals=False)
        if isinstance(error, TypeError) and (missing := _MISSING.search(str(error))) and not place:
            needs = ", ".join(re.findall(r"'(\w+)'", missing[1]))
            return VitlabError(
                f"{_name(model)} needs {needs} in addition to images; instruments and stress tests give images alone; "
                "give all inputs yourself inside `with vitlab.record(model, …)`"
            )
        out_of_memory = isinstance(error, torch.OutOfMemoryError) or is_allocation_failure(error)
        advice = (
            "use fewer images, a smaller batch or a smaller model"
            if out_of_memory
            else "check its settings, the image size and the data; VITLAB_DEBUG=1 shows the traceback"
        )
        return VitlabError(f"{_name(model)} failed{f' in {place}' if place else ''} ({reason_of(error)}); {advice}")
    for frame in frames:
        described = frame.f_locals.get("model")
        if Path(frame.f_code.co_filename).parent == _ADAPTERS and isinstance(described, nn.Module):
            return adapter_error(described, error)
    return None


def place_of(error: Exception, model: nn.Module) -> str:
    """The path of the innermost submodule of a model that was running when an exception was raised; else ''."""
    return _innermost(_frames(error), model, all_locals=False)


def _frames(error: Exception) -> list[FrameType]:
    return [frame for frame, _ in walk_tb(error.__traceback__)]


def _innermost(frames: list[FrameType], model: nn.Module, *, all_locals: bool) -> str:
    """The path of the innermost submodule whose method was running, or that a local variable held; else ''."""
    paths: dict[int, str] = {id(module): path for path, module in model.named_modules()}
    for frame in reversed(frames):
        values = frame.f_locals.values() if all_locals else [frame.f_locals.get("self")]
        found = [paths.get(id(value), "") for value in values if isinstance(value, nn.Module)]
        if any(found):
            return next(path for path in reversed(found) if path)
    return ""


def _name(model: nn.Module) -> str:
    """The class of a model, and the expression that built it, if it is known."""
    expression = getattr(getattr(model, "vitlab_origin", None), "expression", None)
    return f"{type(model).__name__} of {expression}" if expression else type(model).__name__
