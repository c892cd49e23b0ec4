"""Generate the pages of the papers' tables and figures: an overview, then one page for each experiment.

Verdicts come from the records in docs/results/data/reproduce/SCALE/NAME.json, which are copies of the folder `verdicts`
that `vitlab reproduce` writes. A picture NAME.svg beside a record is shown on the page of the experiment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docstrings import cell, escape

from vitlab.core import plugins
from vitlab.core.experiment import SCALES
from vitlab.core.verdicts import OUTCOMES
from vitlab.experiments.catalogue import Experiment, experiment
from vitlab.experiments.record import read_records, verdict_of
from vitlab.reporting.experiment_page import interval_in_words, number_in_words, published_table

RECORDS = Path(__file__).resolve().parents[1] / "results/data/reproduce"
Records = Mapping[str, Mapping[str, Any]]

PAPERS = {
    "cb": "Scratching Visual Transformer's Back with Uniform Attention (CB)",
    "hdvw": "How Do Vision Transformers Work? (HDVW)",
    "tapadl": "Robustifying Token Attention for Vision Transformers (TAPADL)",
}

#: Figures without results.
DIAGRAMS = {
    "cb": "Figs. 1, 2 and 6 are diagrams: CB in a block, its position, and the uniform heads.",
    "tapadl": "Fig. 2 is a diagram of TAP and ADL.",
}


def pages() -> dict[str, str]:
    """The overview and the page of each experiment."""
    stored = read_records(RECORDS)
    found = {name: experiment(name) for name in plugins.experiments()}
    records = {
        name: {scale: stored[name, scale] for scale in SCALES if (name, scale) in stored}  # in the order of the scales
        for name in found
    }
    each = {f"papers/{name}.md": page(found[name], records[name]) for name in found}
    return {"papers/index.md": overview(list(found.values()), records), **each}


def overview(experiments: Sequence[Experiment], records: Mapping[str, Records]) -> str:
    """All experiments in one table for each paper, with the verdicts at each scale."""
    added = [each for each in experiments if each.origin]
    count = len(experiments) - len(added)
    text = [
        "# Tables and figures at a glance",
        f"The {count} experiments of the three papers. Each is one file: the published numbers, the claims, "
        "the jobs of each scale, and the rule of each verdict. A verdict compares the 95 % interval of our effect with "
        "0 and with the smallest relevant effect, by default half of the published one. Statistical claims are not "
        "judged at `smoke`.",
        "```console\n$ vitlab reproduce --list\n$ vitlab reproduce cb_table_s16 --scale smoke\n```",
    ]
    for key, title in {**PAPERS, **({"": "Extensions"} if added else {})}.items():
        own = [each for each in experiments if each.paper == key and not each.origin] if key else added
        rows = [
            (
                f"[{each.name}]({each.name}.md)",
                cell(f"{each.title} [{each.origin}]" if each.origin else each.title),
                str(len(each.claims)),
                "; ".join(f"{scale}: {counts(record)}" for scale, record in records[each.name].items()) or "not run",
            )
            for each in own
        ]
        text += [f"## {title}", _table(("experiment", "table or figure", "claims", "verdicts"), rows)]
        text += [DIAGRAMS[key]] if key in DIAGRAMS else []
    return "\n\n".join(text)


def counts(record: Mapping[str, Any]) -> str:
    """The number of claims of each outcome.

    >>> counts({"verdicts": [{"outcome": "holds"}, {"outcome": "not run"}, {"outcome": "holds"}]})
    '2 holds, 1 not run'
    """
    found = Counter(verdict["outcome"] for verdict in record["verdicts"])
    return ", ".join(f"{found[outcome]} {outcome}" for outcome in OUTCOMES if found[outcome])


def page(found: Experiment, records: Records) -> str:
    """The claims with the verdicts of all scales, the jobs, and the published numbers."""
    link = cell(found.origin) or f"[`{found.file}`](../source/{found.file}.md)"
    facts = [("**source**", link), ("**command**", f"`vitlab reproduce {found.name} --scale smoke`")]
    facts += [(f"**{scale}**", _needs(found, scale)) for scale in SCALES]
    claims = [row for index in range(len(found.claims)) for row in _claim(found, index, records)]
    columns, rows = published_table(found.published)
    text = [
        f"# {found.name}",
        escape(found.title),
        _table(("", ""), facts),
        "## Claims",
        _table(("claim", "source", "paper", "scale", "ours", "95 % interval", "verdict"), claims),
    ]
    for scale in records:
        if (RECORDS / scale / f"{found.name}.svg").is_file():
            picture = f"../results/data/reproduce/{scale}/{found.name}.svg"
            text.append(f"![{found.name} at {scale}]({picture})")
    if rows:
        cells = [(cell(name), *map(cell, values)) for name, values in rows.items()]
        text += ["## Published numbers", _table(("row", *map(cell, columns)), cells)]
    return "\n\n".join(text)


def _claim(found: Experiment, index: int, records: Records) -> list[tuple[str, ...]]:
    """The rows of a claim: one for each scale that was run."""
    claim = found.claims[index]
    start = (cell(claim.sentence), cell(claim.source or "–"), number_in_words(claim.paper))
    rows = []
    for scale, record in records.items():
        entry = next((entry for entry in record["verdicts"] if entry["name"] == claim.name), None)
        if entry is not None:
            verdict = verdict_of(entry)
            numbers = (number_in_words(verdict.our_value), interval_in_words(verdict.interval))
            rows.append((*start, scale, *numbers, f"*{verdict.outcome}*"))
    return rows or [(*start, "–", "–", "–", "*not run*")]


def _needs(found: Experiment, scale: Any) -> str:
    jobs = found.plan(scale)
    needs = sorted({f"`{need}`" for job in jobs for need in job.needs})
    hours = sum(job.gpu_minutes for job in jobs) / 60
    return f"{len(jobs)} jobs, at most {hours:.3g} GPU hours; {', '.join(needs) or 'no data sets'}" if jobs else "none"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
