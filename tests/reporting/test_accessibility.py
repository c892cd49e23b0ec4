"""A report has no serious violation of accessibility and is read by keyboard, narrow and wide, light and dark.

`browser_page` fails on console errors and on requests that leave the machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accessibility import VIEWS, axe, tab_through, violations  # noqa: F401 (fixtures)
from browser import browser_page, chromium, until  # noqa: F401 (fixtures)
from cases.demo_report import demo_report
from cases.looks import LOOKS
from vitlab.reporting import report

pytestmark = pytest.mark.slow


def opened(page: Any, path: Path, width: int, scheme: str) -> Any:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.goto(path.as_uri())
    page.locator(".plot, .attention-view").first.wait_for()
    return page


def draw_all(page: Any) -> None:
    """Draw all figures, which have a button each; they are drawn when they come near the window."""
    folds = "document.querySelectorAll('main details').forEach(fold => {{ fold.open = {}; }})"
    page.evaluate(folds.format("true"))
    for plot in page.locator(".plot").all():
        plot.scroll_into_view_if_needed()
        plot.locator(".modebar-btn").first.wait_for(state="attached")
    page.evaluate(folds.format("false"))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo_report(tmp_path_factory.mktemp("demo") / "report.html")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with few figures."""
    kinds = ("attention_entropy", "attention_maps", "lesion")
    found = [LOOKS[kind](model) for kind in kinds for model in ("plain", "CB")]
    return report(found, tmp_path_factory.mktemp("small") / "report.html")


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_no_serious_violation(browser_page: Any, axe: str, demo: Path, width: int, scheme: str) -> None:  # noqa: F811
    """At first, and with all folds open."""
    page = opened(browser_page, demo, width, scheme)
    assert violations(page, axe) == []
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    assert violations(page, axe) == []


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_the_tab_key_reaches_every_control_and_fold(
    browser_page: Any,  # noqa: F811
    small: Path,
    width: int,
    scheme: str,
) -> None:
    page = opened(browser_page, small, width, scheme)
    draw_all(page)
    assert tab_through(page) == []
    closed = "[...document.querySelectorAll('details')].filter(fold => !fold.open).length"
    assert page.evaluate(closed) == 0
