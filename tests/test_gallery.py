"""The gallery of figures has an entry and a small picture for every kind that a report draws."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from vitlab.reporting import figures
from vitlab.reporting.groups import GROUPS

DOCS = Path(__file__).resolve().parent.parent / "docs"
KINDS = sorted(path.stem for path in Path(figures.__file__).parent.glob("*.py") if path.stem != "__init__")


def entries() -> dict[str, str]:
    """The text of each entry by its kind."""
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    parts = re.split(r"^#{2,3} ", text, flags=re.MULTILINE)[1:]
    return {title: body.strip() for title, _, body in (part.partition("\n") for part in parts) if body.strip()}


def test_every_kind_has_an_entry_in_the_order_of_a_report() -> None:
    assert sorted(entries()) == KINDS
    assert list(entries()) == [kind for kinds in GROUPS.values() for kind in kinds]


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_has_a_picture_and_an_explanation(kind: str) -> None:
    found = entries()[kind]
    shared = re.search(r"Drawn like \[(\w+)\]\(#\1\)\.", found)
    picture = DOCS / "pictures" / "gallery" / f"{shared[1] if shared else kind}.png"
    assert shared or f"](pictures/gallery/{kind}.png)" in found
    assert picture.stat().st_size <= 60_000
    with Image.open(picture) as opened:
        assert 300 <= opened.width <= 640 and len(set(opened.convert("L").get_flattened_data())) > 3  # not empty
    words = found.rpartition("\n\n")[2]
    assert len(re.findall(r"[.:](?: |\n|$)", words)) >= 2 and len(words.split()) >= 20


def test_pictures_are_small_in_total_and_all_used() -> None:
    pictures = list((DOCS / "pictures" / "gallery").iterdir())
    assert sum(path.stat().st_size for path in pictures) <= 1_200_000
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert [path.name for path in pictures if f"pictures/gallery/{path.name}" not in text] == []
