"""The output of `--json`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["finite", "print_json"]


def print_json(result: Any) -> None:
    """Print a result as JSON on stdout; numbers that are not finite are null."""
    print(json.dumps(finite(result), indent=1, ensure_ascii=False, allow_nan=False))


def finite(value: Any) -> Any:
    """A value with None for numbers that are not finite, which JSON does not have.

    >>> finite({"loss": 0.5, "mce": float("nan"), "ce": (0.25, float("inf"))})
    {'loss': 0.5, 'mce': None, 'ce': [0.25, None]}
    """
    if isinstance(value, Mapping):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
