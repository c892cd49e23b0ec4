"""Where the texts of the papers have the numbers of a table or figure: its rows, its caption, and what cites it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path

from vitlab.core.experiment import Published

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


def tables_of(name: str, folder: Path) -> list[list[list[str]]]:
    """Returns the cells of an experiment's table, row by row, for each text that has it."""
    found = []
    for title, blocks in _texts_of(name, folder):
        for place, block in enumerate(blocks):
            if re.match(rf"{re.escape(title)}[.:]", block):
                lines = "\n".join(_belonging(blocks, place, title)).splitlines()
                found.append([line.split("\t") for line in lines if "\t" in line])
    return found


def missing_rows(published: Sequence[Published], table: Sequence[Sequence[str]]) -> list[str]:
    """Returns the rows that a table does not have: with their label, and each number in its column.

    The rows and columns of both have the same order; the table may have more of them, and a cell more than a number. A
    row of the table with fewer cells than others lacks the first ones. A table may be transposed.

    >>> cells = [["", "x", "y"], ["A [3]", "1", "2.5 (+1)"], ["+ B", "3", "4"]]
    >>> first, second = [Published("A", "x", 1), Published("A", "y", 2.5)], [Published("A + B", "x", 3)]
    >>> missing_rows([*first, *second, Published("A + B", "y", 4)], cells)
    []
    >>> missing_rows([*first, *second, Published("A + B", "y", 2.5)], cells)
    ['A + B']
    """
    rows: dict[str, dict[str, float | None]] = {}
    for each in published:
        rows.setdefault(each.row, {})[each.column] = each.value
    columns = list(dict.fromkeys(each.column for each in published))
    width = max(map(len, table))
    cells = [[""] * (width - len(row)) + list(row) for row in table]
    transposed = [list(row) for row in zip(*cells, strict=True)]
    found = [
        _unmatched(rows, dict(zip(columns, chosen, strict=True)), each)
        for each in (cells, transposed)
        for chosen in combinations(range(len(each[0])), len(columns))
    ]
    return min(found, key=len, default=list(rows))


def _unmatched(
    rows: dict[str, dict[str, float | None]], places: dict[str, int], cells: Sequence[Sequence[str]]
) -> list[str]:
    """The rows without a line, given the places of the columns; lines are taken in order."""
    left, missing = list(cells), []
    for row, numbers in rows.items():
        for place, line in enumerate(left):
            same = all(_number(line[places[column]]) == value for column, value in numbers.items())
            if same and _label(line[: min(places.values())]) in _words(row):
                left = left[place + 1 :]
                break
        else:
            missing.append(row)
    return missing


def _number(text: str) -> float | None:
    """The number at the beginning of a cell."""
    match = re.match(r"\d*\.?\d+", re.sub(r"<[^>]+>|[*+]", "", text).strip())
    return float(match.group()) if match else None


def _label(cells: Sequence[str]) -> str:
    """The last cell with words, other than a cross."""
    words = [_words(cell) for cell in cells]
    return next((word for word in reversed(words) if re.search("[a-wyz]", word)), "")


def _words(text: str) -> str:
    """The letters and digits of a label, without footnotes, citations, formulas, and the mark of distilled networks."""
    text = re.sub(r"<sub>m</sub>|<sup>.*?</sup>|<[^>]+>|\[\d+\]|\$[^$]*\$|\(ours\)|baseline", "", text.lower())
    return re.sub("[^a-z0-9]", "", text)


def captions_of(file: Path) -> set[str]:
    """The tables and figures that have a caption in a text."""
    found = (re.match(r"((?:Figure|Table) (?:[A-Z]\.?)?\d+)[.:] ", block) for block in _blocks(file))
    return {match.group(1) for match in found if match}


def region_of(name: str, folder: Path) -> str:
    """Returns the text with the numbers of an experiment: rows of its table, caption, and paragraphs that cite it."""
    found = []
    for title, blocks in _texts_of(name, folder):
        found += [text for place in range(len(blocks)) for text in _belonging(blocks, place, title)]
        found += [block for block in blocks if any(words in block for words in _PARAGRAPHS.get(name, ()))]
    return "\n".join(found)


def _texts_of(name: str, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The texts of the paper of an experiment, each with the title of its table or figure there."""
    for number, file in enumerate(TEXTS[name.partition("_")[0]]):
        title = title_of(name)
        yield _SUPPLEMENT.get(title, title) if number else title, _blocks(folder / file)


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
            tables.insert(0, blocks[place])
        return [*tables, block]
    cited = re.escape(title).replace("Figure", r"(?:Figure|Fig\.)") if title else "$^"
    return [block] if "\t" not in block and re.search(rf"{cited}(?![\d.]*\d)", block) else []
