"""The page on speed: the table of the segmentation loop follows from the committed measurement and meets its target."""

from __future__ import annotations

import json
import re
from pathlib import Path

RESULTS = Path(__file__).resolve().parent.parent / "docs/results"
#: first cells of a row of the page: names of its rows in the benchmark
STEPS = {
    "CB, all blocks": "CB",
    "TAP, K = 4": "TAP",
    "ADL, heads averaged": "ADL",
    "ADL, per head": "ADL per head",
    "TAP + ADL": "TAP + ADL",
}
INSTRUMENTS = {
    "`attention_entropy` / forward": "attention_entropy / forward",
    "six instruments in one pass / forward": "six instruments / forward",
    "`attention_stability` / two forwards": "attention_stability / two forwards",
}


def section(title: str) -> list[list[str]]:
    """The cells of the rows of all tables below a title of the page."""
    text = (RESULTS / "speed.md").read_text(encoding="utf-8").split(f"## {title}")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def spread(row: dict[str, float]) -> str:
    return f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f})"


def test_the_tables_of_fused_operators_are_those_of_the_benchmark() -> None:
    rows = {r["name"]: r for r in json.loads((RESULTS / "data/kernels_h200.json").read_text(encoding="utf-8"))["rows"]}
    measured = {name for name, row in rows.items() if row["group"] == "step" and "ratio" in row}
    table = section("Fused operators")
    for model, step, *_, now, goal, memory in (
        cells for cells in table if cells[0] in ("ViT-S/16", "ViT-B/16", "Swin-Ti")
    ):
        row = rows[f"{model}: {STEPS[step]}"]
        measured.remove(f"{model}: {STEPS[step]}")
        assert now.replace("**", "").removesuffix(", missed") == spread(row)
        assert ("missed" in now) == (round(row["ratio"], 3) > row["goal"]) and float(goal) == row["goal"]
        assert memory.removesuffix(", missed") == f"{row['memory_ratio']:.3f}"
        assert ("missed" in memory) == (row["memory_ratio"] > 1.05)
    assert not measured
    for name, few, many, goal in (cells for cells in table if cells[0] in INSTRUMENTS):
        found = [rows[f"{INSTRUMENTS[name]}, {count} batches"] for count in (8, 32)]
        assert [few, many] == [spread(found[0]), spread(found[1]) + ", missed"]
        assert found[1]["ratio"] > found[1]["goal"] == float(goal)


def test_the_table_of_the_loop_is_that_of_the_benchmark() -> None:
    rows = json.loads((RESULTS / "data/kernels_h200.json").read_text(encoding="utf-8"))["rows"]
    plain, both = (row for row in rows if row["group"] == "loop")
    cells = {name: now for name, _, now, _ in (each for each in section("Fused operators") if len(each) == 4)}
    assert cells["plain"] == f"{plain['images_per_second']:,.0f}, missed"
    assert cells["TAP + ADL"] == f"{both['images_per_second']:,.0f}"
    assert cells["TAP + ADL / plain"] == f"{both['relative_to_plain']:.3f}, missed"
    assert plain["images_per_second"] < plain["goal"] and both["relative_to_plain"] < both["goal"]


def test_the_segmentation_loop_reaches_its_target() -> None:
    text = (RESULTS / "speed.md").read_text(encoding="utf-8")
    lines = text.split("## Segmentation loop")[1].split("\n## ")[0].splitlines()
    compiled, eager = (next(line for line in lines if line.startswith(f"| {form}")) for form in ("compiled", "eager"))
    measured = json.loads((RESULTS / "data/segmentation_h200.json").read_text(encoding="utf-8"))["rows"]
    for row in measured:
        rates = [row["bare"], row["whole"], min(row["epochs"]), max(row["epochs"])]
        expected = [*(f"{rate:.0f}" for rate in rates), f"{row['whole'] / row['bare']:.3f}", "0.9"]
        assert re.findall(r"\d+\.?\d*", compiled if row["compiled"] else eager) == expected
    assert [row["whole"] / row["bare"] >= 0.9 for row in measured if row["compiled"]] == [True]
