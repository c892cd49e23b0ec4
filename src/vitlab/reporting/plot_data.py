"""Plotly figures as JSON that can stand inside a page: short numbers, no gaps that JSON lacks, no tags."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np

#: Significant digits of the numbers in a page: along lines, and in matrices, which are large and shown as colours.
DIGITS, MATRIX_DIGITS = 8, 5


def to_json(plot: Any) -> str:
    """A plotly figure as the text of a script element, whatever strings it holds.

    >>> to_json({"data": [{"y": np.array([1.0, np.nan]), "name": "</script>"}], "layout": {}})
    '{"data":[{"y":[1.0,null],"name":"\\\\u003c/script\\\\u003e"}],"layout":{}}'
    """
    figure = plot if isinstance(plot, dict) else plot.to_plotly_json()
    kept = {"data": plain(figure["data"]), "layout": plain(figure["layout"])}
    return embed(json.dumps(kept, separators=(",", ":"), ensure_ascii=False, allow_nan=False))


def embed(text: str) -> str:
    """JSON without the characters that end a script element or start a comment in it."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plain(value: Any, digits: int = DIGITS) -> Any:
    """Arrays as lists, numbers with so many digits, and None for what is not finite."""
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
    """An array that plotly has packed as base64: the page's CSV button reads lists."""
    array = np.frombuffer(base64.b64decode(packed["bdata"]), dtype=packed["dtype"])
    shape = [int(side) for side in str(packed.get("shape", "")).split(",") if side.strip()]
    return array.reshape(shape) if shape else array
