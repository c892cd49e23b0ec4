"""The output of `vitlab describe`: the architecture of a model, and the forms of the fused operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby

from rich.console import Console
from rich.table import Column, Table
from torch import nn

from vitlab import zoo
from vitlab.adapters import describe, inputs_of
from vitlab.adapters.flow import run_on
from vitlab.adapters.noise import noise_outputs, relative_change
from vitlab.cli.json_output import print_json
from vitlab.core.anatomy import COLUMNS, Anatomy
from vitlab.identity import identify
from vitlab.kernels.kernel_paths import status
from vitlab.recording import record
from vitlab.surgery import restore

__all__ = ["kernel_rows", "show_anatomy", "show_kernels"]


def show_anatomy(expression: str, size: tuple[int, int] | None, *, as_json: bool = False) -> None:
    """Print the architecture of a model."""
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
    console = Console(highlight=False, markup=False)
    h, w = anatomy.input_size
    console.print(expression, style="bold")
    weights = f"{identity.origin} ({identity.weights[:6]})"
    console.print(f"family {anatomy.family}, {parameters:,} parameters, weights: {weights}, images {h}x{w}")
    if change is not None:
        names = ", ".join(dict.fromkeys(str(part["name"]) for part in identity.parts))
        console.print(f"{names}: relative change of the outputs {change:.2g}, on noise images")
    console.print(_table(COLUMNS, anatomy.rows()))
    for seam, reason in anatomy.absent.items():
        console.print(f"no {seam}: {reason}")
    unmapped = Counter(block.mixer.why_no_map for block in anatomy.blocks if block.mixer.why_no_map)
    for why, count in unmapped.items():
        console.print(f"no attention map in {count} of {len(anatomy.blocks)} blocks: {why}")


def show_kernels(expression: str, size: tuple[int, int] | None, *, as_json: bool = False) -> None:
    """Print which form of each fused operator runs for a model on this machine, and why."""
    model = zoo.load(expression).eval()
    anatomy, inputs = describe(model, size), inputs_of(model, size)
    with record(model, "attention", gradients=True, anatomy=anatomy) as tape:
        run_on(model, inputs)
        calls = {str(name): tape.calls(str(name))[-1] for name in tape}
    paths = [asdict(path) for path in status(model, calls)]
    if as_json:
        print_json(paths)
        return
    Console().print(_table(("operator", "places", "form", "reason"), kernel_rows(paths)))


def kernel_rows(paths: Iterable[Mapping[str, str]]) -> list[tuple[str, str, str, str]]:
    """Operator, places, form and reason; successive places of an operator with the same form and reason are one row."""
    by_operator: dict[str, list[Mapping[str, str]]] = {}
    for path in paths:
        by_operator.setdefault(path["operator"], []).append(path)
    rows = []
    for operator, uses in by_operator.items():
        for (form, reason), alike in groupby(uses, key=lambda use: (use["form"], use["reason"])):
            first, *others = [use["place"] for use in alike]
            rows.append((operator, f"{first} to {others[-1]}" if others else first, form, reason))
    return rows


def _change_by_parts(model: nn.Module, size: tuple[int, int] | None) -> float:
    """The relative change of a model's outputs by its parts, which are removed."""
    after = noise_outputs(model, size)
    return relative_change(noise_outputs(restore(model), size), after)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(*(Column(name, overflow="fold") for name in columns), box=None)
    for row in rows:
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
