"""Where the texts of the papers have the numbers of a table or figure: its rows, its caption, and what cites it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

#: The texts of the papers, in the folder VITLAB_PAPERS.
TEXTS = {
    "cb": ("context_broadcasting.txt", "context_broadcasting_supplement.txt"),
    "hdvw": ("how_do_vits_work.txt",),
    "tapadl": ("robust_token_attention.txt",),
}

#: CB's supplement has other names for these: Table S12 is S1 there, Fig. S11 is S1.
_SUPPLEMENT = {**{f"Table S{n + 11}": f"Table S{n}" for n in range(1, 7)}, "Figure S11": "Figure S1"}

#: Numbers that stand in a paragraph of the text which does not cite the table or figure: words of that paragraph.
_PARAGRAPHS = {
    "cb_table_1": ("introducing a minimal number of parameters",),
    "cb_table_10": ("reach the reported number",),
    "hdvw_fig_5": ("of the PiT-Ti, multi-stage ViT-Ti",),
    "tapadl_fig_4": ("the baseline model obtains a high similarity score",),
    "hdvw_fig_11": ("the window size is",),
    "hdvw_fig_d5": ("we use 6 MSAs",),
    "hdvw_throughput": ("throughput",),
    "hdvw_spatial_smoothing": ("spatial smoothing",),
}


def title_of(name: str) -> str:
    """The table or figure of an experiment, as its caption starts; empty for a statement of the text.

    >>> title_of("cb_table_s16"), title_of("hdvw_fig_c1"), title_of("hdvw_throughput")
    ('Table S16', 'Figure C.1', '')
    """
    match = re.fullmatch(r"[a-z]+_(fig|table)_([a-z]?)(\d+)", name)
    if match is None:
        return ""
    kind, letter, number = match.groups()
    dot = "." if letter and name.startswith("hdvw") else ""
    return f"{'Figure' if kind == 'fig' else 'Table'} {letter.upper()}{dot}{number}"


def captions_of(file: Path) -> set[str]:
    """The tables and figures that have a caption in a text."""
    found = (re.match(r"((?:Figure|Table) (?:[A-Z]\.?)?\d+)[.:] ", block) for block in _blocks(file))
    return {match.group(1) for match in found if match}


def region_of(name: str, folder: Path) -> str:
    """Returns the text with the numbers of an experiment: rows of its table, caption, and paragraphs that cite it."""
    found = []
    for number, file in enumerate(TEXTS[name.partition("_")[0]]):
        title = title_of(name)
        if number and title:  # the supplement
            title = _SUPPLEMENT.get(title, title)
        blocks = _blocks(folder / file)
        found += [text for place in range(len(blocks)) for text in _belonging(blocks, place, title)]
        found += [block for block in blocks if any(words in block for words in _PARAGRAPHS.get(name, ()))]
    return "\n".join(found)


@cache
def _blocks(file: Path) -> list[str]:
    """The paragraphs, captions and tables of a text."""
    return [block for block in re.split(r"\n\s*\n", file.read_text(encoding="utf-8")) if block.strip()]


def _belonging(blocks: list[str], place: int, title: str) -> list[str]:
    """The block and the table before its caption, if the block belongs to a title."""
    block = blocks[place]
    if title and re.match(rf"{re.escape(title)}[.:]", block):
        tables = []
        while place and ("\t" in blocks[place - 1] or re.match(r"\([a-z]\) ", blocks[place - 1])):
            place -= 1  # a table, or the caption of its part
            tables.append(blocks[place])
        return [*tables, block]
    cited = re.escape(title).replace("Figure", r"(?:Figure|Fig\.)") if title else "$^"
    return [block] if "\t" not in block and re.search(rf"{cited}(?![\d.]*\d)", block) else []
