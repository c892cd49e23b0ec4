"""Plotly figures as JSON for a page: rounded numbers, null for numbers that are not finite, and no tags."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np

#: Significant digits of numbers in a page: in lists, and in matrices, which are large and drawn as colours.
DIGITS, MATRIX_DIGITS = 8, 5


def to_json(plot: Any) -> str:
    """A plotly figure as text that is safe inside a script element.

    >>> to_json({"data": [{"y": np.array([1.0, np.nan]), "name": "</script>"}], "layout": {}})
    '{"data":[{"y":[1.0,null],"name":"\\\\u003c/script\\\\u003e"}],"layout":{}}'
    """
    figure = plot if isinstance(plot, dict) else plot.to_plotly_json()
    stored = {"data": plain(figure["data"]), "layout": plain(figure["layout"])}
    return embed(json.dumps(stored, separators=(",", ":"), ensure_ascii=False, allow_nan=False))


def embed(text: str) -> str:
    """JSON without the characters that end a script element or start a comment in it."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plain(value: Any, digits: int = DIGITS) -> Any:
    """Arrays as lists, numbers rounded to `digits` significant digits, None for numbers that are not finite."""
    if isinstance(value, dict):
        if value.keys() >= {"dtype", "bdata"}:
            return plain(_unpacked(value))
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each, MATRIX_DIGITS if isinstance(each, (list, tuple, np.ndarray)) else digits) for each in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item(), digits)
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)


def _unpacked(packed: dict[str, Any]) -> np.ndarray:
    """The array that plotly encoded as base64: the CSV button of the page reads lists."""
    array = np.frombuffer(base64.b64decode(packed["bdata"]), dtype=packed["dtype"])
    shape = [int(side) for side in str(packed.get("shape", "")).split(",") if side.strip()]
    return array.reshape(shape) if shape else array
