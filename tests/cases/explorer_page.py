"""The explorer in a browser: serve it, wait for it, read numbers from it; shared by its browser tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from browser import until
from vitlab.explore.app import listen
from vitlab.explore.server import ExplorerState, build

uvicorn = pytest.importorskip("uvicorn", reason="the explorer needs: pip install 'vitlab[explore]'")

IDLE = "document.querySelector('#view').getAttribute('aria-busy') === 'false'"


@contextmanager
def serving(shown: ExplorerState, thread: Any) -> Iterator[str]:
    with listen(0) as listener:
        server = uvicorn.Server(uvicorn.Config(build(shown, thread), log_level="warning", lifespan="off"))
        background = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        background.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            background.join()


def open_page(page: Any, address: str, width: int = 1400, scheme: str = "light") -> Any:
    """Open the page at a width, in light or dark colours, and wait until it is drawn."""
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.goto("about:blank")  # a new address that differs only in its fragment would not load the page again
    page.goto(address)
    page.wait_for_selector(".av-map")
    settle(page)
    return page


def settle(page: Any) -> None:
    """Wait until all requests are drawn; the page waits 120 ms for the last of several changes."""
    page.wait_for_timeout(250)
    until(page, IDLE)


def numbers(page: Any, panel: int = 0) -> list[str]:
    return page.locator(".av-panel").nth(panel).locator(".av-predictions .av-number").all_text_contents()


def maps(page: Any) -> list[str]:
    return page.locator(".av-map canvas").evaluate_all("maps => maps.map(m => m.toDataURL())")
