"""Generate docs/papers.md: all tables and figures of the papers at a glance, with the claims, numbers and verdicts.

    python docs/generator/paper_pages.py

This writes the pages of the experiments too. All are files of the repository, so that they can be read there; tests
compare them with what the generator returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docstrings import cell

from vitlab.core import plugins
from vitlab.core.experiment import SCALES, Claim
from vitlab.core.expressions import parse_model
from vitlab.core.recipe import change
from vitlab.core.verdicts import OUTCOMES
from vitlab.experiments.catalogue import Experiment, experiment
from vitlab.experiments.record import read_records, verdict_of
from vitlab.reporting.experiment_page import ours_in_words, paper_in_words

DOCS = Path(__file__).resolve().parents[1]
RECORDS = DOCS / "results/data/reproduce"

#: The records of an experiment by scale.
Records = Mapping[str, Mapping[str, Any]]

PAPERS = {
    "cb": "CB: Scratching Visual Transformer's Back with Uniform Attention",
    "hdvw": "HDVW: How Do Vision Transformers Work?",
    "tapadl": "TAPADL: Robustifying Token Attention for Vision Transformers",
}

#: Figures without results, and statements of the text.
OTHERS = {
    "cb": "Figs. 1, 2 and 6 are diagrams: the motivation, types of spatial interactions, and the CB module in a block. "
    "The supplement numbers Figs. S11 and S12 as S1 and S2, and Tables S12 to S17 as S1 to S6.",
    "hdvw": "The last two rows are statements of the text. The authors have retracted the trajectories of Fig. 1b "
    "([the instrument](instruments/trajectory.md)).",
    "tapadl": "Fig. 2 is a diagram of TAP and of the architecture.",
}

#: Names of networks and data sets as in the papers.
NETWORKS = {
    "vit_tiny_patch16_224": "ViT-Ti",
    "vit_small_patch16_224": "ViT-S",
    "deit_tiny_patch16_224": "DeiT-Ti",
}
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "imagenet": "ImageNet", "camvid": "CamVid"}

START = """\
Every table and figure of the three papers is an experiment: some claims, each one sentence that can be false, and the
jobs that test them. `vitlab reproduce NAME` runs one, at the scale `small` by default
([options](command_line.md#reproduce)); it shows the plan and its cost first.

{summary}

Nothing was run at the papers' own scale. At `small`, pretrained DeiT-Ti, or ViT-Ti trained on CIFAR-100, replaces the
networks of the papers; the page of an experiment says what differs. The networks trained on CIFAR-100 are those of
[the evidence](results/cifar100_evidence.md); `python -m evidence.records` with the folder of its runs judges the
experiments that they belong to.

A row of the tables below shows one claim of a table or figure: the first one with a result, statistical claims before
counts; without results the first one with a published number.

- **experiment**: links to the page with all claims, the published numbers, and the jobs of each scale.
- **paper**: the published effect, positive in the direction of the claim, or a count. *Sign only*: the paper has a
  curve or a sentence without a number. *Yes or no*: the claim is a fact about an architecture or a function.
- **ours**: our effect with its 95 % interval, and the network and data that were used. *Points* are percentage points.
- **verdict**: on this claim. **all claims** counts the verdicts on all claims of the table or figure.
- **picture**: drawn like the table or figure, from the stored result, with the paper's numbers beside ours.

The verdicts:

- *holds*: the 95 % interval of our effect lies above 0, or a count agrees with the printed one.
- *holds, smaller than published*: it lies above 0 and below the smallest relevant effect, by default half of the
  published one.
- *does not hold*: it lies below the smallest relevant effect, or a count differs.
- *inconclusive*: neither; a single pair of runs has no interval.
- *not run*: no result yet. Claims about training are never judged at `smoke`.

[Claims measured outside of these experiments](measured_claims.md) has results on a pretrained DeiT-Ti and of
benchmarks, and the parts and models of each paper. [The log](log.md) lists all findings by date."""


def all_records() -> dict[str, Records]:
    """Returns the records of each experiment, in the order of the scales."""
    stored = read_records(RECORDS)
    return {
        name: {scale: stored[name, scale] for scale in SCALES if (name, scale) in stored}
        for name in plugins.experiments()
    }


def overview(experiments: Sequence[Experiment], records: Mapping[str, Records]) -> str:
    """Returns the page: a table for each paper, with a row for each experiment; those of extensions have pages only."""
    experiments = [each for each in experiments if not each.origin]
    shown = sum("_fig_" in each.name or "_table_" in each.name for each in experiments)
    text = [f"# {shown} tables and figures at a glance", START.format(summary=summary(experiments, records))]
    for key, title in PAPERS.items():
        own = [each for each in experiments if each.paper == key]
        rows = [_row(each, records[each.name]) for each in own]
        head = ("experiment", "claim", "paper", "ours", "verdict", "all claims", "picture", "command")
        text += [f"## {title}", *shared_results(own, records), table(head, rows), OTHERS[key]]
    return "\n\n".join(text) + "\n"


def summary(experiments: Sequence[Experiment], records: Mapping[str, Records]) -> str:
    """The number of experiments and claims with a result at each scale, and their verdicts; counts are told apart."""
    exact = {(each.name, claim.name): claim.deterministic for each in experiments for claim in each.claims}
    about = []
    for scale in SCALES:
        names = [each.name for each in experiments if scale in records[each.name]]
        judged: dict[bool, list[Mapping[str, Any]]] = {True: [], False: []}
        for name in names:
            for entry in filter(_was_run, records[name][scale]["verdicts"]):
                judged[exact[name, entry["name"]]].append(entry)
        if any(judged.values()):
            about.append(
                f"At `{scale}`, {len(names)} of {len(experiments)} experiments have results, for "
                f"{sum(map(len, judged.values()))} of all {len(exact)} claims. Verdicts on {len(judged[True])} counts "
                f"and facts: {counts({'verdicts': judged[True]})}. Verdicts on {len(judged[False])} effects: "
                f"{counts({'verdicts': judged[False]})}."
            )
    return " ".join(about) or "No experiment has results."


def headline(found: Experiment, records: Records) -> Claim:
    """Returns the claim of an experiment's row."""
    judged = {entry["name"] for record in records.values() for entry in record["verdicts"] if _was_run(entry)}
    statistical = [claim for claim in found.claims if not claim.deterministic]
    candidates = [
        *(claim for claim in statistical if claim.name in judged),
        *(claim for claim in found.claims if claim.name in judged),
        *(claim for claim in statistical if claim.paper is not None),
        *found.claims,
    ]
    return candidates[0]


def shared_results(experiments: Sequence[Experiment], records: Mapping[str, Records]) -> list[str]:
    """A sentence for each result that several rows show, because they share their runs."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in experiments:
        claim = headline(each, records[each.name])
        for scale, record in records[each.name].items():
            for entry in record["verdicts"]:
                if entry["name"] == claim.name and _was_run(entry) and not claim.deterministic:
                    used = used_in(record)
                    number = ours_in_words(claim, verdict_of(entry), interval=True)
                    groups.setdefault((scale + used, number), []).append(_name(each))
    return [
        f"The rows {', '.join(names[:-1])} and {names[-1]} show one result, {number}: they share one set of runs and "
        "are not independent evidence."
        for (_, number), names in groups.items()
        if len(names) > 1
    ]


def used_in(record: Mapping[str, Any]) -> str:
    """The networks and data of the statistical numbers of a record.

    >>> job = {"recipe": "vit_tiny_cifar100", "procedure": "training", "arm": "plain"}
    >>> used_in({"numbers": [{"job": job}, {"job": {**job, "arm": "cb"}}]})
    'ViT-Ti, CIFAR-100'
    """
    found: dict[str, None] = {}
    for entry in record.get("numbers", ()):
        job = entry["job"]
        if job.get("recipe"):
            recipe = change(plugins.recipe(job["recipe"]), job.get("changes", ()))
            found[f"{_network(recipe.model)}, {_data(recipe.data)}"] = None
        elif job.get("data"):
            images = f"{job['images']:,} images of " if job.get("images") else ""
            found[f"{_network(job['model'])}, {images}{_data(job['data'])}"] = None
    return "; ".join(found)


def _network(model: str) -> str:
    name = parse_model(model).name
    return NETWORKS.get(name, name)


def _data(expression: str) -> str:
    name = expression.partition("(")[0]
    return DATA.get(name, name)


def _name(found: Experiment) -> str:
    return cell(found.title.partition(":")[0])


def counts(record: Mapping[str, Any]) -> str:
    """The number of claims of each outcome.

    >>> counts({"verdicts": [{"outcome": "holds"}, {"outcome": "not run"}, {"outcome": "holds"}]})
    '2 holds, 1 not run'
    """
    found = Counter(verdict["outcome"] for verdict in record["verdicts"])
    return ", ".join(f"{found[outcome]} {outcome}" for outcome in OUTCOMES if found[outcome])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown.

    >>> print(table(("a", "b"), [("1", "2")]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(found: Experiment, records: Records) -> tuple[str, ...]:
    claim = headline(found, records)
    entries = {
        scale: verdict_of(entry)
        for scale, record in records.items()
        for entry in record["verdicts"]
        if entry["name"] == claim.name
    }
    pictures = [scale for scale in records if (RECORDS / scale / f"{found.name}.svg").is_file()]
    used = {scale: "" if claim.deterministic else used_in(records[scale]) for scale in entries}
    return (
        f"[{_name(found)}](papers/{found.name}.md)",
        cell(claim.sentence),
        paper_in_words(claim),
        "; ".join(
            f"{scale}{f' ({used[scale]})' if used[scale] else ''}: {ours_in_words(claim, each, interval=True)}"
            for scale, each in entries.items()
        )
        or "–",
        "; ".join(f"*{each.outcome}*" for each in entries.values()) or "*not run*",
        "; ".join(f"{scale}: {counts(record)}" for scale, record in records.items()) or f"{len(found.claims)} not run",
        ", ".join(f"[{scale}](results/data/reproduce/{scale}/{found.name}.svg)" for scale in pictures) or "–",
        f"`vitlab reproduce {found.name}`",
    )


def _was_run(entry: Mapping[str, Any]) -> bool:
    return entry["outcome"] != "not run"


def page() -> str:
    """Returns docs/papers.md."""
    return overview([experiment(name) for name in plugins.experiments()], all_records())
