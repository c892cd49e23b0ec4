"""Mutations of single settings: every instrument, stress test, part, data set, recipe and model, every setting, and
values of wrong types, huge, negative, not finite, nested and empty.

A mutation is refused by a one-line `VitlabError`, or it is accepted and the run finishes. Everything else is a failure:
another exception, a run that takes too long, and a value that is accepted although it cannot be meant.
"""

from __future__ import annotations

import inspect
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vitlab.core.errors import VitlabError

SECONDS = 12  # of CPU time

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 3, 7, -1, -7, 10**6, 10**9, 2**31 - 1, 2**63, -(2**63), 10**30, 10**400, 10**5000),
    *(0.0, -0.0, 0.1, 0.5, 1.0, 1.5, -0.5, 1e-30, 1e30, 1e308, math.nan, math.inf, -math.inf),
    *("", "x", "0", "None", "8/255", "a\0b", "../..", "é" * 40, "a" * 5000, b"x", 1j),
    *((), (1,), (0.5,), (0, 1), (2, 2), (-1, 3), (10**9, 10**9), ((1, 2), (3, 4)), (math.nan, 1.0), (True,), (None,)),
    *([], [0], [[1]], [0.1, 0.2], [1, "x"], ["x"], [None], [10**30], ["x"] * 1000),
    *({}, {"a": 1}, {1}, range(3), np.int64(3), np.float32(0.5), np.array([0.1, 0.2]), np.zeros((2, 2))),
    *(torch.tensor([1.0]), object(), int, len),
)


@dataclass(frozen=True)
class Target:
    """One setting.

    Args:
        kind: for example `instrument`.
        name: what the setting belongs to.
        setting: its name.
        default: its default; `inspect.Parameter.empty` if it has none.
        run: measures, builds or opens with the setting at a value.
    """

    kind: str
    name: str
    setting: str
    default: Any
    run: Callable[[Any], Any]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a mutation.

    Args:
        target, value: the mutation.
        result: `refused`, `accepted`, `raised`, `slow` or `silent`.
        seconds: the CPU time.
        message: the error, or why an accepted value cannot be meant.
    """

    target: Target
    value: Any
    result: str
    seconds: float
    message: str = ""

    def __str__(self) -> str:
        place = f"{self.target.kind} {self.target.name}({self.target.setting}={short(self.value)})"
        return f"{self.result}: {place}, {self.seconds:.1f} s: {self.message}"


def attempt(target: Target, value: Any) -> Outcome:
    """Try one mutation."""
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = target.run(value)
        message = _silent(target, value, found)
        result = "silent" if message else "accepted"
    except VitlabError as error:
        message = str(error)
        # An error of a model is one line, too, but this model fails only if a setting was not checked.
        lines = 1 if "expected:\n" in message else len(message.splitlines())  # the tree of a folder is shown in several
        result = "raised" if "VITLAB_DEBUG" in message or lines != 1 else "refused"
    except Exception as error:
        result, message = "raised", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    seconds = time.process_time() - began
    return Outcome(target, value, "slow" if seconds > SECONDS else result, seconds, message)


def attempt_all(mutations: Iterable[tuple[Target, Any]]) -> tuple[Counter[tuple[str, str]], list[Outcome]]:
    """Try mutations; returns the number of each kind of target and result, and all failures."""
    counts: Counter[tuple[str, str]] = Counter()
    failures = []
    for target, value in mutations:
        outcome = attempt(target, value)
        counts[target.kind, outcome.result] += 1
        if outcome.result not in ("refused", "accepted"):
            failures.append(outcome)
    return counts, failures


def short(value: Any) -> str:
    """A value as text, shortened."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:
        return "10**5000"
    return text if len(text) < 60 else f"{text[:60]}…"


def _silent(target: Target, value: Any, found: Any) -> str:
    """Why an accepted value is invalid; empty if it is valid. Types are compared with that of the default."""
    default = target.default
    if not _finite(value):
        return "not finite"
    if isinstance(value, (bytes, complex, set)) or type(value) in (object, type):
        return f"{type(value).__name__} was accepted"
    number = isinstance(default, int | float) and not isinstance(default, bool)
    if isinstance(value, str) and (number or isinstance(default, bool)):
        return "text was accepted for a number"
    if isinstance(value, bool) != isinstance(default, bool) and default not in (None, inspect.Parameter.empty):
        return "a truth value was accepted for another type, or the reverse"
    if isinstance(default, int) and number and isinstance(value, float | np.floating):
        return "a fraction was accepted for an integer"
    recorded = getattr(found, "settings", {})
    if isinstance(recorded, Mapping) and target.setting in recorded and value is not None:
        return _not_used(value, recorded[target.setting])
    return ""


def _not_used(value: Any, recorded: Any) -> str:
    """Whether a measurement records another value than was given; one value may be recorded as a list of one."""
    given, stored = _plain(value), _plain(recorded)
    same = any(_equal(stored, each) for each in (given, [given], [given, given]))
    return "" if same else f"{short(recorded)} was used"


def _equal(stored: Any, given: Any) -> bool:
    """Whether two values are equal; numbers up to the six digits that are recorded."""
    if isinstance(stored, list) and isinstance(given, list):
        return len(stored) == len(given) and all(map(_equal, stored, given))
    numbers = isinstance(stored, int | float) and isinstance(given, int | float)
    return math.isclose(stored, given, abs_tol=1e-6) if numbers else stored == given


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray | torch.Tensor):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, list | tuple | range) else value


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return all(map(_finite, value)) if isinstance(value, list | tuple) else True
