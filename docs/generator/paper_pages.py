"""Generate a page for each experiment: a table or figure of a paper. `paper_overview.py` has the overview.

Verdicts come from the records in docs/results/data/reproduce/SCALE/NAME.json, which are copies of the folder `verdicts`
that `vitlab reproduce` writes. A picture NAME.svg beside a record is shown on the page of the experiment.
"""

from __future__ import annotations

from typing import Any

from docstrings import cell, escape
from paper_overview import RECORDS, Records, all_records, table

from vitlab.core.experiment import SCALES
from vitlab.experiments.catalogue import Experiment, experiment
from vitlab.experiments.record import verdict_of
from vitlab.reporting.experiment_page import interval_in_words, number_in_words, published_table


def pages() -> dict[str, str]:
    """The page of each experiment."""
    return {f"papers/{name}.md": page(experiment(name), records) for name, records in all_records().items()}


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
        table(("", ""), facts),
        "## Claims",
        table(("claim", "source", "paper", "scale", "ours", "95 % interval", "verdict"), claims),
    ]
    for scale, record in records.items():
        text += [f"At `{scale}`: {escape(sentence)}" for sentence in record.get("differences", ())]
        if (RECORDS / scale / f"{found.name}.svg").is_file():
            picture = f"../results/data/reproduce/{scale}/{found.name}.svg"
            text.append(f"![{found.name} at {scale}]({picture})")
    if rows:
        cells = [(cell(name), *map(cell, values)) for name, values in rows.items()]
        text += ["## Published numbers", table(("row", *map(cell, columns)), cells)]
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
