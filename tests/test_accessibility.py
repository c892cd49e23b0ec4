"""The accessibility checks find what is wrong on pages written by hand, and nothing on a good one."""

from __future__ import annotations

from typing import Any

import pytest

from accessibility import axe, tab_through, violations  # noqa: F401 (fixtures)
from browser import browser_page, chromium  # noqa: F401 (fixtures)

pytestmark = pytest.mark.slow

PAGE = """<!doctype html><html lang="en"><title>page</title><style>button.bare:focus {{ outline: none }}</style>
<main><h1>Page</h1>{}</main></html>"""


def opened(page: Any, body: str) -> Any:
    page.set_content(PAGE.format(body))
    return page


def test_violations_name_rule_and_element(browser_page: Any, axe: str) -> None:  # noqa: F811
    good = '<p style="color:#000">text</p><label>name <input></label>'
    assert violations(opened(browser_page, good), axe) == []
    bad = '<p id="faint" style="color:#ccc">text</p><input id="unnamed">'
    found = violations(opened(browser_page, bad), axe)
    assert [each.split(": ")[:2] for each in sorted(found)] == [
        ["color-contrast (serious)", "#faint"],
        ["label (critical)", "#unnamed"],
    ]


def test_tab_reaches_every_control_and_opens_folds(browser_page: Any) -> None:  # noqa: F811
    good = "<a href='#x'>x</a><details><summary>more</summary><button>in</button></details><select></select>"
    assert tab_through(opened(browser_page, good)) == []
    assert browser_page.locator("button").is_visible()


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("<button tabindex=-1>x</button>", "not reached: <button"),
        ("<button class=bare>x</button>", "focus not marked: <button"),
        ("<button style='position:fixed;left:-999px'>x</button>", "outside the window: <button"),
    ],
)
def test_the_keyboard_check_finds_defects(browser_page: Any, body: str, wrong: str) -> None:  # noqa: F811
    (found,) = tab_through(opened(browser_page, body))
    assert found.startswith(wrong)
