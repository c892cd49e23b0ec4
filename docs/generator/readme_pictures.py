"""Draw the pictures of the README that show the demo: the first screen of its report, and attention with parts.

    python docs/generator/readme_pictures.py DEMO

DEMO is the folder of a finished `vitlab demo`. Needs Chromium and `pip install playwright`.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image

from vitlab.core.measurement import Measurement
from vitlab.demo import TITLE
from vitlab.reporting import read, report
from vitlab.reporting.static_figure import coloured, png

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
#: The side of a picture, the space between pictures and the space for a line of text, in pixels.
SIDE, GAP, LINE = 120, 10, 20


def class_attention(view: Measurement, layer: str) -> np.ndarray:
    """The attention (image, h, w) of the class token to the patches in a layer, mean over heads.

    Args:
        view: a measurement `attention_view`.
        layer: the name of the layer.
    """
    maps, peaks = (np.asarray(view.values[f"{name} of {layer}"], float)[:, :, 0] for name in ("maps", "peak"))
    grid = view.values["grid"][list(view.axes["layer"]).index(layer)]
    mean: np.ndarray = (maps / 255 * peaks[..., None]).mean(1)
    return mean.reshape(len(mean), *map(int, grid))


def attention_picture(views: Sequence[Measurement]) -> str:
    """An SVG: each image, then the attention of each model in its last layer, on one scale for all models."""
    layer = str(views[0].axes["layer"][-1])
    found = [class_attention(view, layer) for view in views]
    images = views[0].values["pictures"]
    names = ["image", *(view.subject for view in views)]
    width, height = len(names) * (SIDE + GAP) - GAP, LINE + len(images) * (SIDE + GAP) - GAP
    parts = [f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for column, name in enumerate(names):
        x = column * (SIDE + GAP)
        parts.append(f'<text x="{x + SIDE / 2}" y="14" text-anchor="middle" fill="#1b1f24">{escape(name)}</text>')
        for row, image in enumerate(images):
            most = max(float(each[row].max()) for each in found)
            pixels = image if not column else coloured(found[column - 1][row] / most)
            place = f'x="{x}" y="{LINE + row * (SIDE + GAP)}" width="{SIDE}" height="{SIDE}"'
            parts.append(f'<image href="{png(pixels)}" {place} style="image-rendering:pixelated"/>')
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    style = 'font-family="system-ui, sans-serif" font-size="13"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(parts)}</svg>\n'


def first_screen(measurements: Sequence[Measurement], file: Path) -> None:
    """Write the first screen of a report as PNG."""
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as session:
        browser = session.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="light")
        page.goto(report(measurements, Path(folder) / "report.html", title=TITLE).as_uri())
        page.wait_for_timeout(3000)
        shot = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
    shot.convert("RGB").save(file, optimize=True)


if __name__ == "__main__":
    (demo,) = sys.argv[1:]
    everything = read([Path(demo)])
    first_screen(everything, PICTURES / "demo_report.png")
    views = [each for each in everything if each.kind == "attention_view"]
    (PICTURES / "parts.svg").write_text(attention_picture(views), encoding="utf-8")
