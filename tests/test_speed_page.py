"""The page on speed: the table of the segmentation loop follows from the committed measurement and meets its target."""

from __future__ import annotations

import json
import re
from pathlib import Path

RESULTS = Path(__file__).resolve().parent.parent / "docs/results"


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
