"""The report in real Chromium: it draws, hovers, saves, prints, and neither complains nor calls out."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from browser import browser_page, chromium, until  # noqa: F401 (fixtures)
from vitlab.core.measurement import Measurement
from vitlab.reporting import report

EVIL = "=HYPERLINK(1)</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
LAYERS = np.array([1.0, 2.0, 4.0, 8.0])


def lines(subject: str, kind: str = "something_new", scale: float = 1.0) -> Measurement:
    values = {"size": scale * LAYERS, "size_error": 0.1 * LAYERS}
    return Measurement(kind, subject, values, dict.fromkeys(values, ("layer",)), {}, {}, {"note": subject})


def matrix(subject: str) -> Measurement:
    return Measurement("pairs", subject, {"likeness": np.eye(3)}, {"likeness": ("here", "there")})


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of two models and many kinds, so that its end is far below the window."""
    found = [lines(who, f"kind_{i}", s) for i in range(8) for who, s in (("plain", 1.0), ("CB", 2.0))]
    path = report([*found, matrix("plain"), matrix("CB")], tmp_path_factory.mktemp("page") / "report.html")
    return path.as_uri()


@pytest.fixture
def opened(browser_page: Any, address: str) -> Any:  # noqa: F811
    browser_page.goto(address)
    browser_page.wait_for_selector(".main-svg")
    return browser_page


def saved(page: Any, press: Callable[[], None]) -> tuple[str, str]:
    with page.expect_download() as download:
        press()
    return download.value.suggested_filename, Path(download.value.path()).read_text(encoding="utf-8")


def test_figures_have_data_and_are_drawn_when_they_come_near(opened: Any) -> None:
    drawn = "document.querySelectorAll('.plot .main-svg').length > 0 && [...document.querySelectorAll('.plot')]"
    assert 1 <= opened.evaluate(f"({drawn}).filter(p => p.data).length") < 9
    opened.locator(".plot").last.scroll_into_view_if_needed()
    until(opened, "[...document.querySelectorAll('.plot')].at(-1).data?.length === 2")
    assert opened.evaluate("document.getElementById('figure-1-1').data.map(t => t.y)") == [
        LAYERS.tolist(),
        (2 * LAYERS).tolist(),
    ]


def test_hover_shows_the_value(opened: Any) -> None:
    opened.locator("#figure-1-1").scroll_into_view_if_needed()
    box = opened.locator("#figure-1-1 .scatterlayer .point").nth(2).bounding_box()
    opened.mouse.move(box["x"] + 3, box["y"] + 30)
    opened.mouse.move(box["x"] + 3, box["y"] + 3)
    until(opened, "document.querySelector('#figure-1-1 .hoverlayer').textContent.includes('plain')")
    words = opened.locator("#figure-1-1 .hoverlayer").text_content()
    assert "plain : 4" in words and "CB : 8" in words


def test_the_data_button_saves_every_point(opened: Any) -> None:
    name, text = saved(opened, opened.locator("button[data-save=csv]").first.click)
    head, *rows = csv.reader(io.StringIO(text))
    assert name == "kind_0-1.csv" and head == ["series", "x (layer)", "y (size)", "error bar"]
    assert [(row[0], float(row[1]), float(row[2])) for row in rows] == [
        *(("plain", i + 1.0, y) for i, y in enumerate(LAYERS)),
        *(("CB", i + 1.0, 2 * y) for i, y in enumerate(LAYERS)),
    ]
    np.testing.assert_allclose([float(row[3]) for row in rows[:4]], 1.96 * 0.1 * LAYERS, rtol=1e-4)


def test_the_data_of_a_matrix_has_a_row_for_each_cell(opened: Any) -> None:
    _, text = saved(opened, opened.locator("button[data-save=csv]").last.click)
    rows = list(csv.reader(io.StringIO(text)))[1:]
    assert len(rows) == 18 and [float(row[3]) for row in rows[:9]] == np.eye(3).ravel().tolist()
    assert {row[0] for row in rows} == {"plain", "CB"}


def test_the_image_button_saves_a_drawing_with_the_finding(opened: Any) -> None:
    name, text = saved(opened, opened.locator("button[data-save=svg]").first.click)
    drawing = ElementTree.fromstring(text)
    words = " ".join("".join(drawing.itertext()).split())
    assert name == "kind_0-1.svg" and drawing.tag.endswith("svg")
    assert "size by layer, mean: 3.75 for plain; CB +3.75" in words


def test_themes_by_keyboard(opened: Any) -> None:
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.textContent") == "Skip to the findings"
    opened.keyboard.press("Tab")
    colours = []
    for _ in range(2):
        opened.keyboard.press("Enter")
        colours.append(opened.evaluate("document.querySelector('.plot').layout.font.color"))
    assert opened.locator("#theme").text_content() == "Theme: dark"
    assert colours == ["#1b1f24", "#e6e9ec"]


def test_print_draws_all_in_dark_ink_and_afterwards_nothing_has_changed(opened: Any) -> None:
    opened.emulate_media(color_scheme="dark")
    opened.evaluate("dispatchEvent(new Event('beforeprint'))")
    seen = "[...document.querySelectorAll('.plot')].map(p => p.layout?.font.color + p.layout?.width)"
    assert set(opened.evaluate(seen)) == {"#1b1f24680"}
    opened.evaluate("dispatchEvent(new Event('afterprint'))")
    assert set(opened.evaluate("[...document.querySelectorAll('.plot')].map(p => p.layout.font.color)")) == {"#e6e9ec"}


def test_a_narrow_window_does_not_scroll_sideways(opened: Any) -> None:
    opened.set_viewport_size({"width": 480, "height": 800})
    opened.wait_for_timeout(300)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 480


def test_hostile_strings_run_nothing_and_are_no_formulas(browser_page: Any, tmp_path: Path) -> None:  # noqa: F811
    odd = Measurement(EVIL, EVIL, {"size": LAYERS[:2]}, {"size": (EVIL,)}, {EVIL: ("<b>x</b>", EVIL)}, {EVIL: EVIL})
    browser_page.goto(report([odd, lines(EVIL)], tmp_path / "page.html", title="honest").as_uri())
    browser_page.locator(".plot").last.scroll_into_view_if_needed()
    until(browser_page, "[...document.querySelectorAll('.plot')].every(p => p.querySelector('.main-svg'))")
    assert browser_page.title() == "honest" and not browser_page.locator("img[src=x]").count()
    _, text = saved(browser_page, browser_page.locator("button[data-save=csv]").first.click)
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[1][0].startswith("'=") and rows[1][1] == "<b>x</b>" and rows[2][1] == f"'{EVIL}"


def test_a_notebook_shows_the_figures(browser_page: Any, tmp_path: Path) -> None:  # noqa: F811
    cell = lines(EVIL)._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<!doctype html><title>book</title>{cell}", encoding="utf-8")
    browser_page.goto((tmp_path / "notebook.html").as_uri())
    browser_page.frame_locator("iframe").locator(".main-svg").first.wait_for()
    assert browser_page.title() == "book"
