"""The output of `vitlab reproduce`: the list of experiments, the plan, the dry run and the table of verdicts."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from vitlab.cli.json_output import print_json
from vitlab.core.errors import VitlabError
from vitlab.core.experiment import SCALES
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.plan import Plan
from vitlab.experiments.record import read_records
from vitlab.reporting.experiment_page import interval_in_words, ours_in_words, paper_in_words

if TYPE_CHECKING:
    from vitlab.experiments.dry_run import Checked
    from vitlab.experiments.recheck import Rechecked
    from vitlab.experiments.reproduce import Reproduced


#: Records of the documentation, in the working directory of a checkout.
_PUBLISHED = Path("docs/results/data/reproduce")


def show_list(experiments: Sequence[Experiment], out: Path, *, as_json: bool = False) -> None:
    """Print what each experiment needs at each scale, and which scales have results.

    Results are those below `out` and, in a checkout, the published ones of the documentation.
    """
    own, published = _scales_with_results(out / "verdicts"), _scales_with_results(_PUBLISHED)
    rows = [_listed(each, own.get(each.name, []), published.get(each.name, [])) for each in experiments]
    if as_json:
        print_json(rows)
    elif not sys.stdout.isatty():
        print("\n".join(str(row["name"]) for row in rows))
    else:
        title = Column("title", min_width=24)
        table = Table(Column("name", no_wrap=True), title, *SCALES, "results", box=None, pad_edge=False)
        for row in rows:
            results = ", ".join([*row["results"], *(f"{scale} (docs)" for scale in row["published"])])
            table.add_row(row["name"], Text(row["title"]), *map(_needs, row["scales"].values()), results)
        Console().print(table)
        print(f"{len(rows)} experiments{_about_published(rows)}")


def _about_published(rows: Sequence[dict[str, Any]]) -> str:
    return f"; (docs): published in {_PUBLISHED}" if any(row["published"] for row in rows) else ""


def _scales_with_results(folder: Path) -> dict[str, list[str]]:
    """The scales of each experiment that have records with numbers."""
    found: dict[str, list[str]] = {}
    for (name, scale), record in read_records(folder).items():
        if record.get("numbers"):
            found.setdefault(name, []).append(scale)
    return found


def _listed(experiment: Experiment, results: list[str], published: list[str]) -> dict[str, Any]:
    scales = {}
    for scale in SCALES:
        jobs = experiment.plan(scale)
        needs = sorted({need for job in jobs for need in job.needs})
        scales[scale] = {"jobs": len(jobs), "gpu_minutes": sum(job.gpu_minutes for job in jobs), "needs": needs}
    about = {"name": experiment.name, "title": experiment.title, "claims": len(experiment.claims)}
    return {**about, "scales": scales, "results": results, "published": published}


def _needs(scale: dict[str, Any]) -> str:
    return " ".join([f"{scale['jobs']} jobs", *scale["needs"]]) if scale["jobs"] else "–"


def show_plan(plan: Plan, *, force: bool = False) -> None:
    """Print what will be run and its cost, on stderr."""
    stored = len(plan.works) - len(plan.missing)
    kept = "are removed and made again" if force else "are stored"
    names = f"{len(plan.experiments)} experiments" if len(plan.experiments) > 1 else plan.experiments[0].name
    print(
        f"{names} at {plan.scale}: {plan.cost(force=force)}; {stored} measurements {kept} in {plan.out}",
        file=sys.stderr,
    )


def show_unplanned(plan: Plan, *, quiet: bool = False) -> None:
    """Print which experiments have no jobs at the scale, and their other scales; an error if no experiment has any."""
    without = {each.name: _scales(each) for each in plan.experiments if not plan.jobs[each.name]}
    if not without:
        return
    names = "; ".join(f"{name} has {', '.join(scales) or 'none'}" for name, scales in without.items())
    if len(without) == len(plan.experiments):
        raise VitlabError(f"there is no plan at the scale {plan.scale}; choose a scale with one: {names}")
    if not quiet:
        print(f"no plan at {plan.scale}: {names}", file=sys.stderr)


def _scales(experiment: Experiment) -> list[str]:
    return [scale for scale in SCALES if experiment.plan(scale)]


def show_checked(checked: Iterable[Checked], *, as_json: bool = False, quiet: bool = False) -> bool:
    """Print the problems that a dry run finds; returns whether there are none."""
    rows = list(checked)
    problems = [row for row in rows if row.problem]
    if as_json:
        print_json([asdict(row) for row in rows])
        return not problems
    for row in problems:
        print(f"{row.title}: {row.problem}")
    known = [row.gigabytes for row in rows if math.isfinite(row.gigabytes)]
    if not quiet:
        most = f"; estimated memory up to {max(known):.3g} GB" if known else ""
        print(f"{len(rows)} training runs and measurements checked, {len(problems)} with problems{most}")
    return not problems


def show_rechecked(rechecked: Iterable[Rechecked], *, as_json: bool = False, quiet: bool = False) -> bool:
    """Print the records whose verdicts changed; returns whether no outcome or number did."""
    found = list(rechecked)
    changed = [each for each in found if each.outcomes]
    if as_json:
        rows = [{"record": str(each.path), "changes": each.outcomes, "texts": each.texts} for each in found]
        print_json(rows)
        return not changed
    for each in changed:
        for change in each.outcomes:
            print(f"{each.path}: {change}")
    if not quiet:
        texts = sum(each.texts for each in found)
        print(f"{len(found)} records judged again: {len(changed)} with other verdicts, {texts} written")
    return not changed


def show_verdicts(found: Sequence[Reproduced], *, as_json: bool = False) -> bool:
    """Print the verdict on every claim and the failed jobs; returns whether no job failed."""
    if as_json:
        print_json([_as_json(each) for each in found])
        return not any(each.failures for each in found)
    table = Table("experiment", "claim", "paper", "ours", "95 % interval", "verdict", box=None)
    for each in found:
        for claim, verdict in zip(each.experiment.claims, each.verdicts, strict=True):
            table.add_row(
                each.experiment.name,
                Text(verdict.claim),
                paper_in_words(claim),
                ours_in_words(claim, verdict),
                interval_in_words(verdict.interval),
                verdict.outcome,
            )
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    for each in found:
        for title, reason in each.failures.items():
            print(f"failed: {each.experiment.name}: {title}: {reason}", file=sys.stderr)
    return not any(each.failures for each in found)


def _as_json(found: Reproduced) -> dict[str, Any]:
    return {
        "experiment": found.experiment.name,
        "verdicts": [asdict(verdict) for verdict in found.verdicts],
        "failures": found.failures,
        "page": str(found.page),
    }
