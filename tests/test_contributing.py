"""The table of ideas in CONTRIBUTING.md: every path in it exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def table_paths(text: str) -> list[str]:
    """The paths in the second column of the table `idea | file`."""
    table = text.partition("| idea | file |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [line.split("|")[2] for line in table.splitlines()]
    return [path for row in rows for path in re.findall(r"`([\w/]+\.py)`", row)]


def missing(paths: list[str], folder: Path) -> list[str]:
    return [path for path in paths if not (folder / path).is_file()]


def test_every_path_in_the_table_exists() -> None:
    paths = table_paths((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(paths) >= 40
    assert missing(paths, ROOT / "src/vitlab") == []


def test_a_missing_path_is_found(tmp_path: Path) -> None:
    (tmp_path / "here.py").touch()
    text = "| idea | file |\n|---|---|\n| a | `here.py`, `gone/there.py` (see `name`) |\n"
    assert missing(table_paths(text), tmp_path) == ["gone/there.py"]
