"""Tables of results in the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Column, Table
from rich.text import Text

from vitlab.core.measurement import Measurement
from vitlab.reporting import read
from vitlab.reporting.key_numbers import KeyNumber, key_numbers
from vitlab.reporting.sections import data_set


def show_numbers(paths: Sequence[Path], *, as_json: bool = False) -> None:
    """Print the key numbers of stored measurements, on stdout in a terminal and for JSON, else on stderr.

    Args:
        paths: measurements, or folders that contain them.
        as_json: print one JSON object per number.
    """
    measurements = read(list(paths))
    rows = key_numbers(measurements)
    if as_json:
        print(json.dumps([_plain(row) for row in rows], indent=1, ensure_ascii=False))
        return
    terminal = sys.stdout.isatty()
    Console(stderr=not terminal, width=None if terminal else 160).print(_page(rows, measurements))


def _page(rows: Sequence[KeyNumber], measurements: Sequence[Measurement]) -> Group:
    models = list(dict.fromkeys(model for row in rows for model in row.values))
    columns = [Column("", overflow="fold")]
    for index, model in enumerate(models):
        columns.append(Column(model, justify="right", overflow="fold"))
        if index:
            columns.append(Column("difference", justify="right"))
    table = Table(*columns, box=None, pad_edge=False)
    title = ""
    for row in rows:
        if row.title != title:
            title = row.title
            table.add_row(Text(title, style="bold"))
        table.add_row(Text(f"  {row.name}"), *_cells(row, models))
    return Group(table, *(Text(line, style="dim") for line in _about(measurements)))


def _cells(row: KeyNumber, models: Sequence[str]) -> list[Text]:
    cells = []
    for index, model in enumerate(models):
        cells.append(Text(row.values.get(model, "–")))
        if index:
            clear = row.clear.get(model, "")
            note = f" ({clear})" if clear else ""
            style = "green" if clear == "clear" else "dim"
            cells.append(Text(f"{row.differences.get(model, '–')}{note}", style=style))
    return cells


def _about(measurements: Sequence[Measurement]) -> list[str]:
    """Lines on the weights, the data and the preprocessing, each once."""
    lines: dict[str, None] = {}
    for each in measurements:
        model = each.provenance.get("model", {})
        if model.get("origin"):
            lines[f"weights of {each.subject}: {model['origin']}"] = None
    for each in measurements:
        data, images = data_set(each), each.provenance.get("images")
        if data:
            lines[f"data: {data}" + (f", {images} images" if images else "")] = None
    for each in measurements:
        how: dict[str, Any] = each.provenance.get("preprocessing") or {}
        if how.get("size"):
            size = "×".join(map(str, how["size"]))
            lines[f"preprocessing: {size}, crop {how.get('crop')}, {how.get('interpolation')}"] = None
    lines["± is half the 95 % interval; clear: the difference is larger than its interval"] = None
    return list(lines)


def _plain(row: KeyNumber) -> dict[str, Any]:
    return {
        "kind": row.title,
        "number": row.name,
        "values": dict(row.values),
        "differences": dict(row.differences),
        "clear": dict(row.clear),
    }
