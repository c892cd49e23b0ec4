"""Draw the picture of docs/results/causal_trace_deit_tiny.md from its stored numbers.

    python docs/generator/causal_trace_picture.py

Needs Chromium and `pip install playwright`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import plotly.io

from vitlab.core.measurement import Measurement
from vitlab.reporting.figures.causal_trace import draw

RESULTS = Path(__file__).resolve().parents[1] / "results"
WIDTH = 1150


def measurements() -> list[Measurement]:
    """The stored numbers, which are in points, as measurements."""
    stored = json.loads((RESULTS / "data" / "causal_trace_deit_tiny.json").read_text(encoding="utf-8"))["corruptions"]
    dims = {"tokens": ("layer", "row", "column"), "heads": ("layer", "head"), "attention": ("layer",)}
    dims |= {"mlp": ("layer",), "prefix": ("layer", "prefix"), "total_effect": ()}
    made = []
    for corruption, found in stored.items():
        values = {key: np.asarray(found[key], dtype=float) / 100 for key in dims if key != "prefix"}
        values["prefix"] = np.asarray(found["class_token"], dtype=float)[:, None] / 100
        made.append(Measurement("causal_trace", "DeiT-Ti", values, dims, settings={"corruption": corruption}))
    return made


def page(plots: list[Any]) -> str:
    """The plots below each other, as HTML."""
    options = {"full_html": False, "default_width": f"{WIDTH}px", "config": {"displayModeBar": False}}
    parts = [
        plotly.io.to_html(plot, include_plotlyjs=not index, default_height=f"{plot.layout.height}px", **options)
        for index, plot in enumerate(plots)
    ]
    return f'<body style="margin:0;background:#ffffff;width:{WIDTH}px">{"".join(parts)}</body>'


def main() -> None:
    """Draw the maps and write the picture."""
    from playwright.sync_api import sync_playwright

    plots = [figure.plot for figure in draw(measurements())[:3]]  # by layer, by token, by head
    for plot in plots:
        plot.update_layout(paper_bgcolor="#ffffff", plot_bgcolor="#ffffff", font_color="#1b1f24")
    with sync_playwright() as session:
        browser = session.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": WIDTH, "height": 800})
        view.set_content(page(plots))
        view.wait_for_function("document.querySelectorAll('.main-svg').length > 0")
        view.screenshot(path=str(RESULTS / "causal_trace_deit_tiny.png"), full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
