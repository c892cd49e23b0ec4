"""The output of `vitlab list`, `vitlab describe` and of measurements: tables on a terminal, lines when piped."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from vitlab.cli.json_output import print_json
from vitlab.core import descriptions, plugins
from vitlab.core.anatomy import COLUMNS, Anatomy

if TYPE_CHECKING:
    from torch import nn

    from vitlab.model_sizes import Size


Rows = Mapping[str, Any]


def _parts() -> dict[str, str]:
    return {name: _with_origin("parts", name, descriptions.summary(at, name)) for name, at in plugins.parts().items()}


def _instruments() -> dict[str, dict[str, Any]]:
    return _cards("instruments", plugins.instruments())


def _stress() -> dict[str, dict[str, Any]]:
    return _cards("stress_tests", plugins.stress_tests())


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


def _recipes() -> dict[str, str]:
    return {
        name: _with_origin("recipes", name, descriptions.summary(at, name)) for name, at in plugins.recipes().items()
    }


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


def _losses() -> dict[str, str]:
    return {name: _with_origin("losses", name, descriptions.summary(at, name)) for name, at in plugins.losses().items()}


def _experiments() -> dict[str, str]:
    known = plugins.experiments()
    return {name: _with_origin("experiments", name, descriptions.summary(at)) for name, at in known.items()}


def _figures() -> dict[str, str]:
    known = plugins.figures()
    return {name: _with_origin("figures", name, descriptions.summary(at)) for name, at in known.items()}


#: The entries of each kind: a summary or a card by name.
KINDS: dict[str, Callable[[], Rows]] = {
    "parts": _parts,
    "models": _models,
    "families": _families,
    "instruments": _instruments,
    "stress": _stress,
    "recipes": _recipes,
    "data": _data,
    "losses": _losses,
    "figures": _figures,
    "experiments": _experiments,
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


def measured(path: Path) -> dict[str, Any]:
    """A summary of a stored measurement: its path, kind, subject, number of images and values.

    `values` holds scalars, `arrays` arrays of at most 100 elements with the labels of their axes. `partial` is present
    where the size of the full benchmark is known.
    """
    from vitlab.core.measurement import Measurement

    stored = Measurement.load(path)
    values = {name: value.item() for name, value in stored.values.items() if not value.ndim}
    arrays = {
        name: {"axes": {axis: list(stored.axes.get(axis, ())) for axis in stored.dims[name]}, "values": value.tolist()}
        for name, value in stored.values.items()
        if value.ndim and value.size <= _SMALL
    }
    about = {key: stored.provenance[key] for key in ("model", "images", "partial") if key in stored.provenance}
    head = {"path": str(path), "kind": stored.kind, "subject": stored.subject}
    return {**head, **about, "values": values, "arrays": arrays}


_SMALL = 100  # elements


def model_of(path: Path) -> str:
    """One line on the model of a stored measurement: its name, the origin of its weights, its parts."""
    from vitlab.core.measurement import Measurement
    from vitlab.identity import ModelIdentity

    model = Measurement.load(path).provenance.get("model", {})
    known = {field.name for field in fields(ModelIdentity)} - {"extensions"} == set(model)
    return str(ModelIdentity(**model)) if known else ""


def shortfall(path: Path) -> str:
    """One line on a measurement of only a part of a benchmark; empty where it is complete or has no official size."""
    from vitlab.core.measurement import Measurement
    from vitlab.reporting.sections import is_part

    stored = Measurement.load(path)
    if not is_part(stored):
        return ""
    images, full = stored.provenance.get("images", 0), stored.provenance.get("official_images", 0)
    what = f"{images:,} images, not the full {full:,}" if images < full else "a part of the benchmark only"
    return f"{stored.kind} of {stored.subject}: on {what}"


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


def show_anatomy(expression: str, size: tuple[int, int] | None, *, as_json: bool = False) -> None:
    """Print the architecture of a model."""
    from vitlab import zoo
    from vitlab.adapters import describe
    from vitlab.identity import identify

    model = zoo.load(expression)
    identity = identify(model, expression)
    anatomy = describe(model, size)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    change = _change_by_parts(model, size) if identity.parts else None
    if as_json:
        about = {"model": asdict(identity), "weights": identity.origin, "parameters": parameters}
        about |= {"output_change": change}
        print_json({**about, **_plain(anatomy)})
        return
    console = Console()
    h, w = anatomy.input_size
    console.print(expression, style="bold", highlight=False, markup=False)
    console.print(
        f"family {anatomy.family}, {parameters:,} parameters, weights: {identity.origin} ({identity.weights[:6]}), "
        f"images {h}x{w}",
        highlight=False,
        markup=False,
    )
    if change is not None:
        names = ", ".join(dict.fromkeys(str(part["name"]) for part in identity.parts))
        console.print(f"{names}: relative change of the outputs {change:.2g}, on noise images", highlight=False)
    console.print(_blocks(anatomy))
    for seam, reason in anatomy.absent.items():
        console.print(f"no {seam}: {reason}", highlight=False, markup=False)
    unmapped = Counter(block.mixer.why_no_map for block in anatomy.blocks if block.mixer.why_no_map)
    for why, count in unmapped.items():
        console.print(
            f"no attention map in {count} of {len(anatomy.blocks)} blocks: {why}", highlight=False, markup=False
        )


def show_kernels(expression: str, size: tuple[int, int] | None, *, as_json: bool = False) -> None:
    """Print which form of each fused operator runs for a model on this machine, and why."""
    from vitlab import zoo
    from vitlab.adapters import describe, inputs_of
    from vitlab.adapters.flow import run_on
    from vitlab.kernels.kernel_paths import status
    from vitlab.recording import record

    model = zoo.load(expression).eval()
    anatomy, inputs = describe(model, size), inputs_of(model, size)
    with record(model, "attention", gradients=True, anatomy=anatomy) as tape:
        run_on(model, inputs)
        calls = {str(name): tape.calls(str(name))[-1] for name in tape}
    paths = [asdict(path) for path in status(model, calls)]
    if as_json:
        print_json(paths)
        return
    table = Table(box=None)
    for column in ("operator", "place", "form", "reason"):
        table.add_column(column, overflow="fold")
    for path in paths:
        table.add_row(*(str(value) for value in path.values()))
    Console().print(table)


def _change_by_parts(model: nn.Module, size: tuple[int, int] | None) -> float:
    """The relative change of a model's outputs by its parts, which are removed."""
    from vitlab.adapters.noise import noise_outputs, relative_change
    from vitlab.surgery import restore

    after = noise_outputs(model, size)
    return relative_change(noise_outputs(restore(model), size), after)


def _blocks(anatomy: Anatomy) -> Table:
    table = Table(box=None)
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for row in anatomy.rows():
        table.add_row(*row)
    return table


def _plain(anatomy: Anatomy) -> dict[str, object]:
    return {
        "family": anatomy.family,
        "input_size": anatomy.input_size,
        "absent": dict(anatomy.absent),
        "blocks": [
            {
                "name": block.name,
                "stage": block.stage,
                "mixer": block.mixer.kind,
                "no_map": block.mixer.why_no_map,
                "seams": {
                    seam.name: {
                        "path": seam.path,
                        "side": seam.side,
                        "grid": seam.layout.grid,
                        "prefix": seam.layout.prefix,
                        "order": seam.layout.order,
                        "dim": seam.dim,
                    }
                    for seam in block.seams
                },
            }
            for block in anatomy.blocks
        ],
    }
