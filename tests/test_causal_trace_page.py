"""The table of the page on causal traces equals the committed numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
COLUMNS = ("gaussian_noise", "defocus_blur", "fog")


def entry(found: dict, row: str) -> tuple[float, float]:
    """The effect of a row of the table, and half its 95 % interval."""
    layer = int(re.search(r"layer (\d+)", row)[1]) - 1 if "layer" in row else None
    if row == "total effect":
        return found["total_effect"], 1.96 * found["total_effect_error"]
    if row.startswith("head"):
        head = int(row.split()[1]) - 1
        return found["heads"][layer][head], 1.96 * found["heads_error"][layer][head]
    name = {"class": "class_token", "attention": "attention", "MLP": "mlp"}[row.split()[0]]
    return found[name][layer], 1.96 * found[f"{name}_error"][layer]


def test_every_cell_is_the_committed_number() -> None:
    data = json.loads((RESULTS / "data" / "causal_trace_deit_tiny.json").read_text(encoding="utf-8"))["corruptions"]
    text = (RESULTS / "causal_trace_deit_tiny.md").read_text(encoding="utf-8").replace("−", "-")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if "±" in line and line.startswith("|")]
    assert len(rows) == 9
    for name, *cells in rows:
        for column, cell in zip(COLUMNS, cells, strict=True):
            value, half = (float(part) for part in cell.split(" ± "))
            effect, width = entry(data[column], name)
            assert abs(value - effect) <= 0.051 and abs(half - width) <= 0.07, (name, column, cell)
