"""A page in real Chromium without console messages and external requests: shared by all browser tests.

Import the fixtures by name: `from browser import browser_page, chromium`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path(shutil.which("chromium") or shutil.which("google-chrome") or "/usr/bin/chromium")

#: Addresses that do not leave the machine.
AT_HOME = ("file:", "data:", "blob:", "about:", "http://127.0.0.1:")

#: 3-D without a graphics card; nothing of the browser's own goes out.
ARGUMENTS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="browser tests need: pip install playwright")
    if not CHROMIUM.exists():
        pytest.skip(f"browser tests need {CHROMIUM}: apt install chromium")
    with playwright.sync_playwright() as session:
        browser = session.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def browser_page(chromium: Any) -> Iterator[Any]:
    """A page whose test fails on any console error, exception, dialog, or request that leaves the machine."""
    context = chromium.new_context(accept_downloads=True, viewport={"width": 1100, "height": 800})
    page = context.new_page()
    page.set_default_timeout(60_000)  # a loaded machine is slow, not wrong
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(AT_HOME) else wrong.append(request.url))

    def refuse(dialog: Any) -> None:
        wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", refuse)
    yield page
    context.close()
    assert not wrong, wrong


def until(page: Any, expression: str, seconds: float = 60) -> None:
    """Wait until a JavaScript expression is true; Playwright's own wait evaluates strings, which our pages forbid."""
    for _ in range(int(seconds * 10)):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"not true after {seconds} s: {expression}")
