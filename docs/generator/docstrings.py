"""Convert a docstring to Markdown: escaped prose, equations and doctests as code, Args and notes as definition lists.

Docstrings of this project have one form (CONTRIBUTING.md); no other form is supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from textwrap import dedent

#: Sections whose indented lines are `name: meaning` entries.
ENTRIES = ("Args", "Raises")
#: Sections whose indented lines are prose.
PROSE = ("Returns", "Yields")
#: The entries of a recipe's docstring, one paragraph with one or more lines of each.
NOTES = ("Source", "Hardware", "Runtime", "Expected", "Command")

_ENTRY = re.compile(r"(\*{0,2}\w+(?:, \w+)*): (.*)", re.DOTALL)
_NOTE = re.compile(rf"^({'|'.join(NOTES)}): ", re.MULTILINE)


def markdown(docstring: str, defaults: Mapping[str, str] | None = None) -> str:
    """Returns the whole docstring as Markdown.

    Args:
        docstring: text without indentation, as `inspect.getdoc` returns it.
        defaults: the default of each argument, as Markdown; shown after its description.

    >>> print(markdown("Halve x_i.\\n\\nArgs:\\n    x: what to halve.", {"x": "`1`"}))
    Halve x\\_i.
    <BLANKLINE>
    **Args**
    <BLANKLINE>
    `x`
    :   what to halve. *Default* `1`.
    """
    return "\n\n".join(_block(block, defaults or {}) for block in _blocks(docstring))


def parts_of(docstring: str) -> tuple[str, str]:
    """Returns the first paragraph, which is the summary, and the rest.

    >>> parts_of("One line.\\n\\nMore.")
    ('One line.', 'More.')
    """
    summary, _, rest = docstring.partition("\n\n")
    return " ".join(summary.split()), rest


def escape(text: str) -> str:
    """Escape text for Markdown; code in backticks is unchanged.

    >>> escape("RVT* keeps `x_i` < 1 [ours]")
    'RVT\\\\* keeps `x_i` &lt; 1 \\\\[ours]'
    """
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(piece if piece.startswith("`") else _escape(piece) for piece in pieces)


def _escape(text: str) -> str:
    return re.sub(r"([*_\[\\`])", r"\\\1", text).replace("&", "&amp;").replace("<", "&lt;")


def cell(text: str) -> str:
    """Escape text for a table cell, in which a bar is escaped inside backticks, too.

    >>> cell("|A| and `a | b`")
    '&#124;A&#124; and <code>a &#124; b</code>'
    """
    marked = re.sub(r"`([^`]*\|[^`]*)`", r"<code>\1</code>", text)
    pieces = re.split(r"(<code>.*?</code>)", marked)
    return "".join(p if p.startswith("<code>") else escape(p) for p in pieces).replace("|", "&#124;")


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs, and sections with the indented lines below their headings."""
    block: list[str] = []
    for line in text.splitlines():
        inside = bool(block) and _heading(block[0]) is not None
        ends = (not line and not inside) or (inside and line and not line.startswith(" "))
        if ends and block:
            yield "\n".join(block).rstrip()
            block = []
        if line or inside:
            block.append(line)
    if block:
        yield "\n".join(block).rstrip()


def _heading(line: str) -> str | None:
    return line[:-1] if line.endswith(":") and line[:-1] in ENTRIES + PROSE else None


def _block(block: str, defaults: Mapping[str, str]) -> str:
    first, _, rest = block.partition("\n")
    heading = _heading(first)
    if heading in ENTRIES:
        return f"**{heading}**\n\n" + "\n\n".join(_entry(text, defaults) for text in _items(dedent(rest)))
    if heading in PROSE:
        return f"**{heading}**\n\n" + "\n\n".join(_block(text, {}) for text in _blocks(dedent(rest)))
    if block.startswith(">>> "):
        return f"```pycon\n{block}\n```"
    if block.startswith("    "):
        return f"```text\n{dedent(block)}\n```"
    if _NOTE.match(block):
        pieces = _NOTE.split(block)[1:]
        return "\n\n".join(_definition(name, text) for name, text in zip(pieces[::2], pieces[1::2], strict=True))
    return escape(block)


def _items(text: str) -> list[str]:
    """The entries of a section; continuation lines are indented."""
    return [" ".join(item.split()) for item in re.split(r"\n(?=\S)", text) if item.strip()]


def _entry(item: str, defaults: Mapping[str, str]) -> str:
    match = _ENTRY.fullmatch(item)
    if match is None:
        return escape(item)
    names, meaning = match.group(1).split(", "), escape(match.group(2))
    given = [defaults[name] for name in names if name in defaults]
    if given:
        meaning = f"{meaning} *Default* {', '.join(given)}."
    return f"{', '.join(f'`{name}`' for name in names)}\n:   {meaning}"


def _definition(name: str, text: str) -> str:
    show: Callable[[str], str] = (lambda code: f"`{code}`") if name == "Command" else escape
    return f"{name}\n:   {show(' '.join(text.split()))}"
