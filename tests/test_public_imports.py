"""Examples and documentation import public names only: those of `vitlab` and `vitlab.extend`."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import vitlab
import vitlab.extend

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = {"vitlab": {*vitlab.__all__, "extend", "__version__"}, "vitlab.extend": set(vitlab.extend.__all__)}
SCRIPTS = sorted((ROOT / "examples").rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```python(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def internal(code: str) -> list[str]:
    """The internal modules and names of vitlab that some code uses."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names if each.name.startswith("vitlab.") and each.name not in PUBLIC]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "vitlab":
            known = PUBLIC.get(node.module or "", set())
            found += [f"{node.module}.{each.name}" for each in node.names if each.name not in known]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in PUBLIC:
            module = ast.unparse(node.value)
            found += [] if node.attr in PUBLIC[module] else [f"{module}.{node.attr}"]
    return found


def blocks(page: Path) -> list[str]:
    """The Python blocks of a page, except files of the package itself and their tests, which `adding.md` shows."""
    found = _FENCE.findall(page.read_text(encoding="utf-8"))
    return [code for title, code in found if not title.startswith(("src/", "tests/"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_imports_public_names(script: Path) -> None:
    assert internal(script.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda path: path.stem)
def test_code_of_a_page_imports_public_names(page: Path) -> None:
    assert [name for code in blocks(page) for name in internal(code)] == []


def test_the_documented_pages_are_checked() -> None:
    assert {"README", "tour", "api", "adding", "your_own"} <= {page.stem for page in PAGES if blocks(page)}
    assert len(SCRIPTS) >= 8


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import vitlab\nvitlab.measure('x', m, b)\nvitlab.extend.Card", []),
        ("from vitlab import load, Monitor\nfrom vitlab.extend import Card", []),
        ("import vitlab.extend as extend", []),
        ("import vitlab.zoo", ["vitlab.zoo"]),
        ("from vitlab import runner", ["vitlab.runner"]),
        ("def f():\n    from vitlab.core.recipe import Recipe", ["vitlab.core.recipe.Recipe"]),
        ("from vitlab.extend import secret", ["vitlab.extend.secret"]),
        ("import vitlab\nvitlab.inputs.batches_for(m)", ["vitlab.inputs"]),
    ],
)
def test_the_checker_finds_internal_names(code: str, expected: list[str]) -> None:
    assert internal(code) == expected


def test_extensions_can_import_what_the_files_of_the_page_import() -> None:
    """As `adding.md` says, an extension imports all names from `vitlab.extend`; they are the same objects."""
    found = _FENCE.findall((ROOT / "docs/adding.md").read_text(encoding="utf-8"))
    checked = 0
    for node in (node for title, code in found if title.startswith("src/") for node in ast.walk(ast.parse(code))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vitlab."):
            module = importlib.import_module(node.module or "")
            for each in node.names:
                assert getattr(vitlab.extend, each.name) is getattr(module, each.name)
                checked += 1
    assert checked >= 30
    table = (ROOT / "docs/api.md").read_text(encoding="utf-8").partition("## Names for extensions")[2]
    assert set(re.findall(r"`(\w+)`", table.partition("```")[0])) >= set(vitlab.extend.__all__)


@pytest.mark.parametrize("module", [vitlab, vitlab.extend], ids=lambda module: module.__name__)
def test_every_public_name_exists(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert names == sorted(names) == sorted(module._MODULES)  # type: ignore[attr-defined]
    assert all(getattr(module, name).__name__ == name for name in names if name != "Scale")  # a Literal has no name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'; it has: "):
        getattr(module, "nothing")  # noqa: B009
