"""Accessibility of a page in real Chromium: violations that axe-core finds, and the controls that the Tab key reaches.

axe-core is an npm package for development only; `make test-browser` installs it into `.browser`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

AXE = Path(__file__).resolve().parent.parent / ".browser" / "node_modules" / "axe-core" / "axe.min.js"

#: The widths of the window and the colour schemes of all accessibility tests.
VIEWS = [(width, scheme) for width in (1400, 800, 390) for scheme in ("light", "dark")]

_VIOLATIONS = """axe.run(document, {resultTypes: ['violations']}).then(found => found.violations
    .filter(each => ['serious', 'critical'].includes(each.impact))
    .flatMap(each => each.nodes.map(node => {
        const reasons = [...node.any, ...node.all, ...node.none].map(check => check.message).join('; ');
        return `${each.id} (${each.impact}): ${node.target.join(' ')}: ${reasons}`;
    })))"""

_CONTROLS = "a[href], button, select, input, textarea, summary, [tabindex='0']"

#: The control with the focus: a name, whether it is drawn in the window, and whether its focus is marked. A hidden
#: input, such as that of a file, is drawn as its label.
_FOCUS = """() => {
    const control = document.activeElement;
    if (control === document.body) return null;
    control.dataset.reached = '';
    const label = control.closest('label');
    const marked = node => {
        const style = getComputedStyle(node);
        const outline = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
        return outline || style.boxShadow !== 'none';
    };
    const box = (label || control).getBoundingClientRect();
    const drawn = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
    const fold = control.matches('summary') && !control.parentElement.open;
    const visible = marked(control) || (label !== null && marked(label));
    return {name: control.outerHTML.slice(0, 160), drawn, marked: visible, fold};
}"""

_MISSED = f"""() => [...document.querySelectorAll("{_CONTROLS}")]
    .filter(each => each.checkVisibility() && !each.disabled && !('reached' in each.dataset))
    .map(each => each.outerHTML.slice(0, 160))"""


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    if not AXE.exists():
        pytest.skip("accessibility tests need axe-core: make test-browser installs it with npm")
    return AXE.read_text(encoding="utf-8")


def violations(page: Any, axe: str) -> list[str]:
    """The serious and critical violations: rule, impact, element and message of each."""
    page.evaluate(f"{axe}; 0")
    page.evaluate("Promise.all(document.getAnimations().map(each => each.finished))")  # colours at rest
    found: list[str] = page.evaluate(_VIOLATIONS)
    return found


def tab_through(page: Any, most: int = 1000) -> list[str]:
    """Press Tab from the start of the page to its end and open closed folds with Enter; returns what is wrong.

    Wrong is a control that is not reached, that is outside the window while it has the focus, or whose focus is not
    marked by an outline or a shadow.
    """
    wrong: list[str] = []
    page.evaluate("document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')")
    for _ in range(most):
        page.keyboard.press("Tab")
        focus = page.evaluate(_FOCUS)
        if focus is None:
            break
        wrong += [f"outside the window: {focus['name']}"] if not focus["drawn"] else []
        wrong += [f"focus not marked: {focus['name']}"] if not focus["marked"] else []
        if focus["fold"]:
            page.keyboard.press("Enter")
    return wrong + [f"not reached: {each}" for each in page.evaluate(_MISSED)]
