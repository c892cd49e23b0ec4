"""Draw the pictures of docs/gallery.md: the first figure of each kind, as a report draws it.

    python docs/generator/gallery_pictures.py DEMO OUT --imagenet DIR --weights FILE

The arguments are those of `gallery_measurements.py`. Needs Chromium and `pip install playwright`.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gallery_measurements import all_measurements, arguments
from PIL import Image

from vitlab.core.measurement import Measurement
from vitlab.reporting import report
from vitlab.reporting.drawing import Figure
from vitlab.reporting.section_view import draw_section
from vitlab.reporting.sections import Section, label_models, sort

PICTURES = Path(__file__).resolve().parents[1] / "pictures" / "gallery"
WIDTH = 640
#: The largest height of a figure in HTML, in pixels of the page.
HEIGHT = 760
COLOURS = 64


def sections(measurements: Sequence[Measurement]) -> Iterator[Section]:
    """The sections of a report on each kind by itself, the first one of kinds with several."""
    for kind in dict.fromkeys(each.kind for each in measurements):
        chosen = [each for each in measurements if each.kind == kind]
        yield sort(chosen, label_models(chosen))[0]


def screenshot(page: Any, section: Section, folder: Path) -> bytes:
    """The first figure as PNG."""
    figures, note = draw_section(section)
    if note:
        raise RuntimeError(note)
    first, file = figures[0], folder / "page.html"
    if isinstance(first, Figure):
        first.plot.update_layout(width=WIDTH, paper_bgcolor="white", font_size=12)
        first.plot.write_html(file, config={"displayModeBar": False})
        page.goto(file.as_uri())
        page.locator(".main-svg").first.wait_for()
        page.wait_for_timeout(500)
        return bytes(page.locator(".plot-container").screenshot())
    page.goto(report(section.averaged(), file).as_uri())
    shown = page.locator(".attention-view, .answers").first
    shown.scroll_into_view_if_needed()
    page.wait_for_timeout(1000)
    box = shown.bounding_box()
    area = {"x": box["x"], "y": box["y"] + page.evaluate("scrollY"), "width": box["width"], "height": HEIGHT}
    return bytes(page.screenshot(clip=area, full_page=True))


def shrink(picture: bytes) -> Image.Image:
    """At most `WIDTH` pixels wide, with few colours."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    if image.width > WIDTH:
        image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS)
    return image.quantize(COLOURS, dither=Image.Dither.NONE)


def main() -> None:
    """Draw every kind that was measured."""
    from playwright.sync_api import sync_playwright

    given = arguments()
    measurements = all_measurements(given.demo, given.out, given.imagenet, given.weights)
    PICTURES.mkdir(parents=True, exist_ok=True)
    switches = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with sync_playwright() as session, tempfile.TemporaryDirectory() as folder:
        browser = session.chromium.launch(executable_path=shutil.which("chromium"), args=switches)
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        for section in sections(measurements):
            path = PICTURES / f"{section.kind}.png"
            shrink(screenshot(page, section, Path(folder))).save(path, optimize=True)
            print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
        browser.close()


if __name__ == "__main__":
    main()
