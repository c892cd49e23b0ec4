"""The layout of a report like that of the demo in real Chromium: narrow and wide, light and dark, by keyboard."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import browser_page, chromium, until  # noqa: F401 (fixtures)
from vitlab.core.measurement import Measurement
from vitlab.demo import KINDS, MODELS
from vitlab.reporting import report
from vitlab.reporting.drawing import COLOURS, DARK_COLOURS

pytestmark = pytest.mark.slow

SCREEN = 900
ROOT = Path(__file__).resolve().parents[2]
VIEWS = [(width, scheme) for width in (1400, 800, 390) for scheme in ("light", "dark")]


def attention_view(subject: str, layers: int = 6, heads: int = 4, lattice: int = 7) -> Measurement:
    """Random attention of two images in the shapes of the demo."""
    random, names = np.random.default_rng(0), [f"blocks.{i}" for i in range(layers)]
    queries = 1 + lattice * lattice
    values = {
        "pictures": random.integers(0, 255, (2, 32, 32, 3), dtype=np.uint8),
        "label": np.array(["circle", "square"]),
        "class": np.array([["circle", "square", "star", "cross", "triangle"]] * 2),
        "probability": np.array([[0.6, 0.2, 0.1, 0.05, 0.05]] * 2),
        "lens class": np.full((2, layers, 1), "circle"),
        "lens probability": np.full((2, layers, 1), 0.5),
        "grid": np.full((layers, 2), 8),
        "bound": np.full(layers, np.log(65)),
        "kind": np.full(layers, "attention"),
        "why": np.full(layers, ""),
        "why no lens": np.full(layers, ""),
    }
    dims: dict[str, tuple[str, ...]] = {
        "pictures": ("image", "row", "column", "channel"),
        "label": ("image",),
        **dict.fromkeys(("class", "probability"), ("image", "rank")),
        **dict.fromkeys(("lens class", "lens probability"), ("image", "layer", "lens rank")),
        "grid": ("layer", "side"),
        **dict.fromkeys(("bound", "kind", "why", "why no lens"), ("layer",)),
    }
    for name in names:
        found = {"maps": random.integers(0, 255, (2, heads, queries, 64), dtype=np.uint8)}
        found |= {what: random.random((2, heads, queries)) for what in ("peak", "entropy")}
        found["prefix"] = random.random((2, heads, queries, 1))
        values |= {f"{what} of {name}": value for what, value in found.items()}
        dims |= {
            f"{what} of {name}": ("image", *(f"{what} axis {i} of {name}" for i in range(1, value.ndim)))
            for what, value in found.items()
        }
    return Measurement("attention_view", subject, values, dims, {"layer": tuple(names)}, {"lattice": lattice})


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of the models and kinds of the demo, with the random numbers of the benchmark."""
    spec = importlib.util.spec_from_file_location("report_benchmark", ROOT / "benchmarks" / "report.py")
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    found = []
    for seed, model in enumerate(MODELS):
        every = {each.kind: each for each in benchmark.synthetic(model, seed)}
        found += [attention_view(model) if kind == "attention_view" else every[kind] for kind in KINDS]
    assert {each.kind for each in found} == set(KINDS)
    return report(found, tmp_path_factory.mktemp("layout") / "report.html", title="A demo").as_uri()


@pytest.fixture
def opened(browser_page: Any, address: str) -> Any:  # noqa: F811
    def at(width: int, scheme: str = "light") -> Any:
        browser_page.set_viewport_size({"width": width, "height": SCREEN})
        browser_page.emulate_media(color_scheme=scheme)
        browser_page.goto(address)
        browser_page.wait_for_selector(".attention-view canvas", state="attached")
        return browser_page

    return at


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_the_page_does_not_scroll_sideways_and_draws_all_figures(opened: Any, width: int, scheme: str) -> None:
    page = opened(width, scheme)
    page.evaluate("document.querySelectorAll('main details').forEach(fold => { fold.open = true; })")
    last = page.locator(".plot").last
    last.scroll_into_view_if_needed()
    last.locator(".main-svg").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_ten_screens_before_anything_is_unfolded(opened: Any) -> None:
    page = opened(1400)
    assert page.evaluate("document.documentElement.scrollHeight") <= 10 * SCREEN
    first = page.locator("#summary .overview").bounding_box()
    assert first["y"] + first["height"] <= SCREEN  # the overview is on the first screen
    columns = page.evaluate("new Set([...document.querySelectorAll('.card')].map(c => c.offsetLeft)).size")
    assert columns == 2


def test_one_figure_per_section_and_one_column_in_a_narrow_window(opened: Any) -> None:
    page = opened(800)
    shown = "[...card.querySelectorAll('.plot')].filter(p => p.checkVisibility()).length"
    assert max(page.evaluate(f"[...document.querySelectorAll('.card')].map(card => {shown})")) == 1
    assert page.evaluate("new Set([...document.querySelectorAll('.card')].map(c => c.offsetLeft)).size") == 1


@pytest.mark.parametrize("width", [1400, 800, 390])
def test_navigation_and_folds_by_keyboard(opened: Any, width: int) -> None:
    page = opened(width)
    reached: set[str] = set()
    for _ in range(400):
        page.keyboard.press("Tab")
        focus = "document.activeElement.matches('.menu > summary') ? 'menu' : "
        focus += "document.activeElement.matches('.side nav a') ? 'link' : "
        focus += "document.activeElement.matches('.card summary') ? 'fold' : ''"
        what = page.evaluate(focus)
        if what == "menu" and what not in reached:
            page.keyboard.press("Enter")
        if what == "link" and what not in reached:
            page.keyboard.press("Enter")
            assert page.evaluate("location.hash")
            page.evaluate("history.replaceState(null, '', ' ')")
            page.locator("#content").evaluate("node => { node.tabIndex = -1; node.focus(); }")
        if what == "fold":
            page.keyboard.press("Enter")
            assert page.evaluate("document.activeElement.parentElement.open")
            reached.add(what)
            break
        reached.add(what)
    assert {"link", "fold"} <= reached and ("menu" in reached) == (width < 1000)


def test_lines_have_their_own_colours_in_the_dark_theme(opened: Any) -> None:
    page = opened(1400, "dark")
    page.locator("[data-file='training-1']").scroll_into_view_if_needed()
    drawn = "[...new Set(document.querySelector(\"[data-file='training-1']\").data.map(t => t.line.color))]"
    until(page, "document.querySelector(\"[data-file='training-1']\").data")
    assert set(page.evaluate(drawn)) >= set(DARK_COLOURS[:3])
    stroke = "[...document.querySelectorAll('.legend .stroke')].map(s => getComputedStyle(s).stroke)"
    rgb = ["rgb({}, {}, {})".format(*(int(c[i : i + 2], 16) for i in (1, 3, 5))) for c in DARK_COLOURS[:3]]
    assert page.evaluate(stroke) == rgb
    page.locator("#theme").click()  # light
    until(page, f"({drawn}).includes('{COLOURS[0]}')")


def test_claims_are_short_and_have_no_names_of_values(opened: Any) -> None:
    page = opened(1400)
    page.evaluate("document.querySelectorAll('main details').forEach(fold => { fold.open = true; })")
    claims = page.locator(".claim, h4").all_text_contents()
    assert len(claims) >= len(KINDS) and max(map(len, claims)) <= 90
    text = page.evaluate("document.getElementById('content').innerText")
    assert not [word for word in text.split() if "_" in word]
    assert not [word for word in text.split() if word.startswith("-") and word[1:2].isdigit()]  # a true minus


def test_a_link_of_the_overview_leads_to_its_section(opened: Any) -> None:
    page = opened(1400)
    cell = page.locator(".heat td a").last
    target = cell.get_attribute("href")
    cell.click()
    until(page, f"document.querySelector('{target}').getBoundingClientRect().top < {SCREEN}")
    assert page.evaluate("location.hash") == target
