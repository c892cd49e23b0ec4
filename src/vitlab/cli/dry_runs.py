"""Tables of `--dry-run`: what a command would run, on which data, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from vitlab import runner
from vitlab.cli.json_output import print_json
from vitlab.core.recipe import Recipe
from vitlab.dry_run import PlannedMeasurement, planned_measurements, planned_training

__all__ = ["duration", "show_measurements", "show_training"]


def duration(seconds: float) -> str:
    """Returns a time in the largest fitting unit.

    >>> [duration(each) for each in (0.0001, 0.004, 7.6, 89, 5000, 200_000)]
    ['< 1 ms', '4 ms', '7.6 s', '1.5 min', '1.4 h', '2.3 days']
    """
    if 0 < seconds < 0.0005:
        return "< 1 ms"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    for limit, unit, name in ((60, 1, "s"), (3600, 60, "min"), (86_400, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds / 86_400:.1f} days"


def show_measurements(
    verb: str, models: Sequence[str], names: Sequence[str], out: Path, options: dict[str, Any], *, as_json: bool
) -> None:
    """Print the measurements that `measure` or `stress` would make."""
    kind = runner.INSTRUMENTS if verb == "measure" else runner.STRESS_TESTS
    defaults = {"augment": None, "seed": 0}
    planned = list(planned_measurements(kind, models, names, out, **{**defaults, **options}))
    if as_json:
        print_json([asdict(each) for each in planned])
        return
    console = Console(highlight=False, markup=False)
    groups: dict[tuple[str, str, str, str], list[PlannedMeasurement]] = {}
    for each in planned:
        groups.setdefault((each.model, each.weights, each.data, each.device), []).append(each)
    for (model, weights, data, device), members in groups.items():
        console.print(model, style="bold", soft_wrap=True)
        console.print(f"weights {weights}; data {data}; {device}", soft_wrap=True)
        console.print(_plan_table(verb, members))
    console.print(_total(planned), soft_wrap=True)


def _plan_table(verb: str, planned: Sequence[PlannedMeasurement]) -> Table:
    """Measurements of one model on one data set; names are not wrapped, so that 80 columns suffice."""
    table = Table(Column(verb, no_wrap=True), box=None, padding=(0, 2, 0, 0))
    for title in ("images", "one forward", "time"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("cost")
    for each in planned:
        images = "–" if each.images is None else f"{each.images:,}"
        forward = "–" if each.forward_seconds is None else duration(each.forward_seconds)
        estimate = "stored" if each.stored else "not estimated" if each.seconds is None else duration(each.seconds)
        table.add_row(each.procedure, images, forward, estimate, Text(each.cost))
    return table


def _total(planned: Sequence[PlannedMeasurement]) -> str:
    """The estimated time of all measurements, and those that it does not include."""
    known = [each.seconds for each in planned if each.seconds is not None]
    unknown = dict.fromkeys(each.procedure for each in planned if each.seconds is None)
    without = f"; not estimated: {', '.join(unknown)}" if unknown else ""
    if not known:
        return f"total time not estimated: {', '.join(unknown)}"
    return f"total time: about {duration(sum(known))}, an estimate from the time of one forward{without}"


def show_training(recipe: Recipe, out: Path, *, root: Path | None, device: str | None, as_json: bool) -> None:
    """Print what `train` would do."""
    planned = planned_training(recipe, out, root=root, device=device)
    if as_json:
        print_json(asdict(planned))
        return
    remaining = f"{planned.steps:,} steps in {planned.epochs} epochs of batches of {recipe.batch_size}"
    if planned.finished_steps:
        remaining += f", {planned.finished_steps:,} of them done"
    rows = {
        "model": planned.model,
        "data": planned.data,
        "work": remaining,
        "evaluations": f"{planned.evaluations}, of {recipe.evaluate_images or 'all'} test images",
        "speed": f"{planned.images_per_second:,.1f} images/s on {planned.device}, without compilation",
        "time": f"about {duration(planned.seconds)}, of it {duration(planned.evaluation_seconds)} for evaluations",
        "folder": str(out),
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)
