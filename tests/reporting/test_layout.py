"""The layout of a report like that of the demo in real Chromium: narrow and wide, light and dark, by keyboard."""

from __future__ import annotations

from typing import Any

import pytest

from accessibility import VIEWS
from browser import browser_page, chromium, until  # noqa: F401 (fixtures)
from cases.demo_report import demo_report
from vitlab.demo import KINDS
from vitlab.reporting.drawing import COLOURS, DARK_COLOURS

pytestmark = pytest.mark.slow

SCREEN = 900


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return demo_report(tmp_path_factory.mktemp("layout") / "report.html").as_uri()


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


def test_the_folded_page_has_at_most_ten_screens(opened: Any) -> None:
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


def test_an_open_fold_widens_its_card_and_its_summary_stays(opened: Any) -> None:
    page = opened(1400)
    card = page.locator(".card:has([data-file='attention_diversity-1'])")
    summary, plot = card.locator("summary").first, card.locator(".plot").first
    summary.scroll_into_view_if_needed()
    plot.locator(".main-svg").first.wait_for()
    narrow, top = card.bounding_box()["width"], summary.bounding_box()["y"]
    summary.click()
    until(page, f"document.querySelector('.card:has(details.more[open])').offsetWidth > {1.9 * narrow}")
    drawn = "document.querySelector(\"[data-file='attention_diversity-1'] .main-svg\").getBoundingClientRect().width"
    until(page, f"{drawn} > {1.8 * narrow}")
    assert abs(summary.bounding_box()["y"] - top) < 2
    summary.click()
    until(page, f"{drawn} < {narrow}")


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


def test_links_of_the_overview_lead_to_sections(opened: Any) -> None:
    page = opened(1400)
    cell = page.locator(".heat td a").last
    target = cell.get_attribute("href")
    cell.click()
    until(page, f"document.querySelector('{target}').getBoundingClientRect().top < {SCREEN}")
    assert page.evaluate("location.hash") == target


@pytest.mark.parametrize("width", [1400, 800, 390])
def test_texts_of_tables_are_neither_cut_nor_overlap(opened: Any, width: int) -> None:
    page = opened(width)
    page.evaluate("document.querySelectorAll('main details').forEach(fold => { fold.open = true; })")
    wider = "[...document.querySelectorAll('.numbers td, .heat td a, .heat .what')].filter(each => "
    wider += "each.scrollWidth > each.clientWidth + 1).map(each => each.textContent)"
    assert page.evaluate(wider) == []
    outside = "[...document.querySelectorAll('.legend li')].map(each => each.getBoundingClientRect().right)"
    assert max(page.evaluate(outside)) <= width


def test_tables_of_three_models_fit_a_narrow_window(opened: Any) -> None:
    page = opened(390)
    page.evaluate("document.querySelectorAll('main details').forEach(fold => { fold.open = true; })")
    assert page.locator(".numbers thead").first.locator("th").count() == 3
    wider = "[...document.querySelectorAll('.numbers')].filter(each => each.parentElement.scrollWidth > "
    wider += "each.parentElement.clientWidth + 1).map(each => each.textContent)"
    assert page.evaluate(wider) == []


def test_a_scrollable_table_is_marked(opened: Any) -> None:
    page = opened(390)
    page.evaluate("document.querySelector('.numbers').style.minWidth = '60rem'")
    place = page.locator(".scroll", has=page.locator(".numbers")).first
    until(page, "document.querySelector('.numbers').parentElement.matches('.cut')")
    place.evaluate("each => { each.scrollLeft = each.scrollWidth; }")
    until(page, "!document.querySelector('.numbers').parentElement.matches('.cut')")


def test_titles_beside_an_axis_are_inside_their_figure(opened: Any) -> None:
    page = opened(1400)
    for plot in page.locator(".card > .body .plot").all():
        if plot.is_visible():
            plot.scroll_into_view_if_needed()
            plot.locator(".main-svg").first.wait_for()
    outside = "[...document.querySelectorAll('.ytitle, .y2title')].filter(each => {"
    outside += " const [own, all] = [each, each.closest('.main-svg')].map(e => e.getBoundingClientRect());"
    outside += " return own.height && (own.top < all.top - 1 || own.bottom > all.bottom + 1);"
    outside += "}).map(each => each.textContent)"
    assert page.evaluate(outside) == []


def test_dark_digits_on_light_cells_are_black(opened: Any) -> None:
    """Plotly writes #444, with a contrast of 3 on the green of 60 %."""
    page = opened(1400, "dark")
    plot = page.locator("[data-file='corruptions-1']")
    plot.scroll_into_view_if_needed()
    plot.locator(".heatmap-label").first.wait_for(state="attached")
    fills = "[...new Set([...document.querySelectorAll('.heatmap-label text, text.heatmap-label')]"
    fills += ".map(each => getComputedStyle(each).fill))]"
    assert set(page.evaluate(fills)) <= {"rgb(0, 0, 0)", "rgb(255, 255, 255)"}


def test_landmarks_have_different_names(opened: Any) -> None:
    page = opened(1400)
    page.evaluate("document.querySelectorAll('main details').forEach(fold => { fold.open = true; })")
    words = "e.ariaLabel || document.getElementById(e.getAttribute('aria-labelledby')).innerText"
    landmarks = "'[role=region], section[aria-labelledby], section[aria-label]'"
    names = page.evaluate(
        f"[...document.querySelectorAll({landmarks})].filter(e => e.checkVisibility()).map(e => {words})"
    )
    assert len(names) > 20 and [name for name in set(names) if names.count(name) > 1] == []
