"""The output of `vitlab list`: tables on a terminal, lines when piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from vitlab.cli.json_output import print_json
from vitlab.core import descriptions, plugins

if TYPE_CHECKING:
    from vitlab.model_sizes import Size


Rows = Mapping[str, Any]


def _models() -> dict[str, str]:
    from vitlab import zoo

    names = [f"{source}/{name}" for source in ("vitlab", "timm", "torchvision") for name in zoo.model_names(source)]
    texts = {
        f"vitlab/{name}": _with(each.origin, descriptions.summary(each.reference, name))
        for each in plugins.added_models().values()
        for name in zoo.registered_by(each.reference)
    }
    return {name: texts.get(name, "") for name in names}


def _families() -> dict[str, str]:
    adapters = plugins.family_adapters()
    return {
        name: _with(descriptions.origin_of(adapters[name]), example) for name, example in plugins.families().items()
    }


def _summaries(kind: str, known: Mapping[str, str]) -> dict[str, str]:
    """The first line of the docstring of each name; those of extensions with their origin."""
    return {name: _with_origin(kind, name, descriptions.summary(at, name)) for name, at in known.items()}


def _with_origin(kind: str, name: str, text: str) -> str:
    """A summary, with the origin of an extension."""
    return _with(descriptions.origin(kind, name), text)


def _with(origin: str, text: str) -> str:
    return f"{text} [{origin}]" if origin else text


def _cards(kind: str, known: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The cards of instruments or stress tests; those of extensions with their origin."""
    cards = descriptions.cards(kind, known)
    return {name: {**card, "title": _with_origin(kind, name, card["title"])} for name, card in cards.items()}


def _data() -> dict[str, str]:
    return {name: _with_origin("data", name, text) for name, text in descriptions.data_summaries().items()}


#: The entries of each kind: a summary or a card by name.
KINDS: dict[str, Callable[[], Rows]] = {
    "parts": lambda: _summaries("parts", plugins.parts()),
    "models": _models,
    "families": _families,
    "instruments": lambda: _cards("instruments", plugins.instruments()),
    "stress": lambda: _cards("stress_tests", plugins.stress_tests()),
    "recipes": lambda: _summaries("recipes", plugins.recipes()),
    "data": _data,
    "losses": lambda: _summaries("losses", plugins.losses()),
    "figures": lambda: _summaries("figures", plugins.figures()),
    "experiments": lambda: _summaries("experiments", plugins.experiments()),
}


def show(what: str, *, as_json: bool = False, quiet: bool = False) -> None:
    """Print the names of one kind, or the number of each kind."""
    kinds = [kind for kind in KINDS if kind not in ("models", "data")]
    rows = KINDS[what]() if what else {kind: str(len(KINDS[kind]())) for kind in kinds}
    if as_json:
        print_json(rows)
    elif not what or sys.stdout.isatty():
        Console().print(_table(rows))
    else:
        print("\n".join(rows))
    if what and not as_json and not quiet:
        print(f"{len(rows)} {what}", file=sys.stderr if not sys.stdout.isatty() else sys.stdout)


def _table(rows: Rows) -> Table:
    """A table of summaries, or of cards with one column for each field."""
    if not any(isinstance(entry, dict) for entry in rows.values()):
        table = Table(Column(overflow="fold"), Column(overflow="fold"), box=None, show_header=False)
        for name, summary in rows.items():
            table.add_row(name, Text(summary))
        return table
    fields = (Column(field, overflow="fold") for field in _CARD)  # paths of extensions have no spaces to wrap at
    table = Table(Column("name", no_wrap=True), *fields, box=None)
    for name, card in rows.items():
        table.add_row(name, *(Text(_joined(card.get(field, ""))) for field in _CARD))
    return table


_CARD = ("title", "paper", "cost", "inputs", "passes", "needs")


def _joined(field: str | Sequence[str]) -> str:
    return field if isinstance(field, str) else ", ".join(field)


def show_sizes(*, as_json: bool = False, quiet: bool = False) -> None:
    """Print parameters and multiply-accumulates of the papers' models, counted and published."""
    from rich.progress import track

    from vitlab import model_sizes

    progress = Console(stderr=True)
    total = len(model_sizes.published())
    silent = quiet or not progress.is_terminal
    counted = list(track(model_sizes.sizes(), "counting", total, console=progress, transient=True, disable=silent))
    if as_json:
        print_json([{**asdict(size), "marks": size.marks} for size in counted])
        return
    rows = [_size_cells(size) for size in counted]
    if sys.stdout.isatty():
        table = Table(box=None)
        for column in _SIZE_COLUMNS:
            table.add_column(column, justify="left" if column == "model" else "right", overflow="fold")
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        print("= equal after rounding to the printed digits, ≈ within 1 % (parameters) or 2 % (MACs), ≠ neither")
    else:
        print("\n".join("\t".join(row) for row in [_SIZE_COLUMNS, *rows]))


_SIZE_COLUMNS = ("model", "parameters", "exact", "paper, M", "MACs, G", "paper, G", "parts, M", "paper, M")


def _size_cells(size: Size) -> tuple[str, ...]:
    """The row of a model: counted sizes, and published sizes with their marks."""
    marks, known = size.marks, asdict(size.published)
    published = {key: f"{mark} {known[key]:,}".strip() if mark else "" for key, mark in marks.items()}
    added = f"{size.added_macs / 1e6:.2f}" if size.added_macs else ""
    counted = (f"{size.parameters:,}", f"{size.macs / 1e9:.3f}", added)
    return (
        *(size.expression, counted[0], published["exact_params"], published["params_m"]),
        *(counted[1], published["macs_g"], counted[2], published["added_macs_m"]),
    )
