"""The explorer has no serious violation of accessibility and is reached by keyboard, narrow and wide, light and dark.

`browser_page` fails on console errors and on requests that leave the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from accessibility import VIEWS, axe, tab_through, violations  # noqa: F401 (fixtures)
from browser import browser_page, chromium, until  # noqa: F401 (fixtures)
from cases.explorer_page import open_page, serving, settle
from cases.exploring import MODELS, on_show

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ExitStack() as stack:
        yield stack.enter_context(serving(*stack.enter_context(on_show(MODELS))))


def show_controls(page: Any, width: int) -> None:
    if width < 960:
        page.locator("#menu").press("Enter")


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_no_serious_violation(browser_page: Any, axe: str, address: str, width: int, scheme: str) -> None:  # noqa: F811
    """At first, and with everything that can be switched on: corruption, ablation, overlay, differences, trace."""
    page = open_page(browser_page, address, width, scheme)
    assert violations(page, axe) == []
    show_controls(page, width)
    page.locator("#severity").fill("5")
    page.locator("#method").select_option("gradient")
    page.locator("#ablate").press("Enter")
    settle(page)
    assert violations(page, axe) == []
    if width < 960:
        page.keyboard.press("Escape")
    page.locator(".av-map").first.press("Enter")
    page.get_by_label("difference").check()
    settle(page)
    page.locator("#causal-run").press("Enter")
    until(page, "document.querySelector('#causal-status').textContent === 'Done.'")
    assert violations(page, axe) == []


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_the_tab_key_reaches_every_control(browser_page: Any, address: str, width: int, scheme: str) -> None:  # noqa: F811
    page = open_page(browser_page, address, width, scheme)
    show_controls(page, width)
    page.locator("#ablate").press("Enter")
    assert tab_through(page) == []
