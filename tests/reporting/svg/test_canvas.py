"""The picture is valid XML, escapes its texts, and has colours for light and dark."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from vitlab.reporting.svg.canvas import Canvas


def test_texts_are_escaped_and_the_file_is_valid() -> None:
    canvas = Canvas(100, 50, "a < b & c", "about")
    canvas.text(1, 2, "<script>", "soft")
    canvas.add("rect", "page", x=1.04, y=2, width=3, height=4)
    root = ElementTree.fromstring(str(canvas))
    shown = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert shown == ["a < b & c", "about", "<script>"]
    assert 'x="1" y="2"' in str(canvas) and "prefers-color-scheme: dark" in str(canvas)
