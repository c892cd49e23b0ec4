"""Tables of results in the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from vitlab.cli.json_output import print_json
from vitlab.core.measurement import Measurement
from vitlab.reporting import read
from vitlab.reporting.convergence import convergence_note
from vitlab.reporting.key_numbers import KeyNumber, by_model, key_numbers
from vitlab.reporting.number_text import clearness
from vitlab.reporting.sections import data_set


def show_numbers(paths: Sequence[Path], *, as_json: bool = False, beside_paths: bool = False) -> None:
    """Print the key numbers of stored measurements on stdout.

    Piped, the table has one line per number and no colours.

    Args:
        paths: measurements, or folders that contain them.
        as_json: print the numbers as one JSON object.
        beside_paths: the command prints paths on stdout; a pipe then gets only these, and stderr the table.
    """
    measurements = read(list(paths))
    rows = key_numbers(measurements)
    if as_json:
        print_json(_plain(rows, measurements))
        return
    console = Console(stderr=beside_paths and not sys.stdout.isatty())
    page = _page(rows, measurements)
    if console.is_terminal:
        console.print(page)
        return
    wide = Console(width=_NO_LIMIT, no_color=True)
    with wide.capture() as text:
        wide.print(page)
    print("\n".join(line.rstrip() for line in text.get().splitlines()), file=console.file)


_NO_LIMIT = 1000  # columns; lines of piped tables are not wrapped


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
        table.add_row(Padding(row.name, (0, 0, 0, 2)), *_cells(row, models))
    unknown = any(row.differences.get(model) and not row.clear.get(model) for row in rows for model in models)
    return Group(table, *(Text(line, style="dim") for line in _about(measurements, unknown=unknown)))


def _cells(row: KeyNumber, models: Sequence[str]) -> list[Text]:
    cells = []
    for index, model in enumerate(models):
        cells.append(Text(row.values.get(model, "–")))
        if index:
            clear = row.clear.get(model, "")
            note = f" ({clear})" if clear else " (noise not known)" if row.differences.get(model) else ""
            style = "green" if clear == "clear" else "dim"
            cells.append(Text(f"{row.differences.get(model, '–')}{note}", style=style))
    return cells


def _about(measurements: Sequence[Measurement], *, unknown: bool) -> list[str]:
    """Lines on the weights, the data and the preprocessing, each once; `unknown`: a difference has no interval."""
    models_of = by_model(measurements)
    models = {model: _facts(own) for model, own in models_of.items()}
    lines = [f"weights of {model}: {facts['weights']}" for model, facts in models.items() if facts["weights"]]
    for facts in models.values():
        for data in facts["data"]:
            lines.append(f"data: {data['name']}{_images(data['images'])}")
    for facts in models.values():
        for how in facts["preprocessing"]:
            size = "×".join(map(str, how["size"]))
            lines.append(f"preprocessing: {size}, crop {how.get('crop')}, {how.get('interpolation')}")
    lines += [note for own in models_of.values() if (note := convergence_note(own))]
    lines.append("± is half the 95 % interval; clear: the difference is larger than its interval")
    if unknown:
        lines.append("noise not known: measure with --repeats 3 or more, on disjoint parts of the images")
    return list(dict.fromkeys(lines))


def _facts(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """The weights, the data and the preprocessing of one model.

    The images of one measurement are those of all its parts: `2 × 16` images are 32.
    """
    parts: dict[str, dict[tuple[str, str], dict[str, int]]] = {}
    how = []
    for each in measurements:
        about = each.provenance
        if data_set(each):
            own = parts.setdefault(data_set(each), {}).setdefault((each.kind, _settings(each)), {})
            own[str(about.get("data"))] = int(about.get("images") or 0)
        if (about.get("preprocessing") or {}).get("size") and about["preprocessing"] not in how:
            how.append(about["preprocessing"])
    data = [
        {"name": name, "images": sorted({sum(each.values()) for each in own.values()} - {0}, reverse=True)}
        for name, own in parts.items()
    ]
    origins = [origin for each in measurements if (origin := each.provenance.get("model", {}).get("origin"))]
    return {"weights": origins[0] if origins else "", "data": data, "preprocessing": how}


def _images(counts: Sequence[int]) -> str:
    """The number of images as text; of several measurements the smallest and the largest."""
    if not counts:
        return ""
    return f", {min(counts)} to {max(counts)} images" if len(counts) > 1 else f", {counts[0]} images"


def _settings(measurement: Measurement) -> str:
    return json.dumps(dict(measurement.settings), sort_keys=True, default=str)


def _plain(rows: Sequence[KeyNumber], measurements: Sequence[Measurement]) -> dict[str, Any]:
    """The table as numbers, in their unit; null where a number is not known."""
    models = [{"name": model, **_facts(own)} for model, own in by_model(measurements).items()]
    numbers = [
        {
            "kind": row.title,
            "number": row.name,
            "unit": row.unit,
            "values": [_plain_number(row, model) for model in row.numbers],
        }
        for row in rows
    ]
    return {"models": models, "numbers": numbers}


def _plain_number(row: KeyNumber, model: str) -> dict[str, Any]:
    own, gap = row.numbers[model], row.gaps.get(model)
    result = {"model": model, "value": row.scale * own.value, "half_width": row.scale * own.half_width}
    if gap is None:
        return {**result, "difference": None, "difference_half_width": None, "state": None}
    half, state = row.scale * gap.half_width, clearness(gap)
    return {**result, "difference": row.scale * gap.value, "difference_half_width": half, "state": state}
