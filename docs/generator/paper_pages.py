"""Generate a page for each experiment: a table or figure of a paper. `paper_overview.py` has the overview.

    python docs/generator/paper_pages.py

The pages are files of the repository, docs/papers.md and docs/papers/NAME.md, so that they can be read there; tests
compare them with what this module returns. The site generates only those of extensions.

Verdicts come from the records in docs/results/data/reproduce/SCALE/NAME.json, which are copies of the folder `verdicts`
that `vitlab reproduce` writes. A picture NAME.svg beside a record is shown on the page of the experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import cleandoc
from typing import Any

from docstrings import cell, escape, markdown, parts_of
from paper_overview import DOCS, RECORDS, Records, all_records, table
from paper_overview import page as overview

from vitlab.core.experiment import SCALES, Scale
from vitlab.experiments.catalogue import Experiment, experiment
from vitlab.experiments.record import verdict_of
from vitlab.experiments.reproduce import trained_networks
from vitlab.reporting.experiment_page import interval_in_words, ours_in_words, paper_in_words, published_table


def pages() -> dict[str, str]:
    """The page of each experiment."""
    return {f"papers/{name}.md": page(experiment(name), records) for name, records in all_records().items()}


def page(found: Experiment, records: Records) -> str:
    """What the experiment chooses, the claims with the verdicts of all scales, the jobs, and the published numbers."""
    link = cell(found.origin) or f"[`{found.file}`](../../{found.file})"
    facts = [("**source**", link), ("**command**", _commands(found, records))]
    facts += [("**jobs**", cell(parts_of(cleandoc(text))[0])) for text in [found.module.plan.__doc__] if text]
    facts += [(f"**{scale}**", _needs(found, scale)) for scale in SCALES]
    claims = [row for index in range(len(found.claims)) for row in _claim(found, index, records)]
    columns, rows = published_table(found.published)
    text = [
        f"# {found.name}",
        escape(found.title),
        *_about(found),
        table(("", ""), facts),
        "## Claims",
        table(("claim", "source", "paper", "scale", "ours", "95 % interval", "verdict"), claims),
    ]
    for scale in SCALES:
        differences = [*found.differences(scale), *_ran(found, scale, records)]
        text += [f"At `{scale}`: {escape(sentence)}" for sentence in dict.fromkeys(differences)]
    for scale in records:
        if (RECORDS / scale / f"{found.name}.svg").is_file():
            picture = f"../results/data/reproduce/{scale}/{found.name}.svg"
            text.append(f"![{found.name} at {scale}]({picture})")
    if rows:
        cells = [(cell(name), *map(cell, values)) for name, values in rows.items()]
        text += ["## Published numbers", table(("row", *map(cell, columns)), cells)]
    return "\n\n".join(text) + "\n"


def _about(found: Experiment) -> list[str]:
    """The docstring of its file, without the name of the table or figure."""
    summary, rest = parts_of(cleandoc(vars(found.module).get("__doc__") or ""))
    about = summary.removeprefix(f"{found.title.partition(':')[0]}: ")
    return [markdown(text) for text in (about[:1].upper() + about[1:], rest) if text]


def _ran(found: Experiment, scale: Scale, records: Records) -> Sequence[str]:
    """What was run at a scale, as its record states it; without a record, what would be trained."""
    if scale in records:
        return records[scale].get("differences", ())
    return [] if scale == "smoke" else trained_networks(found.plan(scale))


def _commands(found: Experiment, records: Records) -> str:
    """The command of each scale with a result; without results that of the smallest scale."""
    scales = list(records) or [next((scale for scale in SCALES if found.plan(scale)), SCALES[0])]
    return ", ".join(f"`vitlab reproduce {found.name} --scale {scale}`" for scale in scales)


def _claim(found: Experiment, index: int, records: Records) -> list[tuple[str, ...]]:
    """The rows of a claim: one for each scale that was run."""
    claim = found.claims[index]
    start = (cell(claim.sentence), cell(claim.source or "–"), paper_in_words(claim))
    rows = []
    for scale, record in records.items():
        entry = next((entry for entry in record["verdicts"] if entry["name"] == claim.name), None)
        if entry is not None:
            verdict = verdict_of(entry)
            numbers = (ours_in_words(claim, verdict), interval_in_words(verdict.interval))
            rows.append((*start, scale, *numbers, f"*{verdict.outcome}*"))
    return rows or [(*start, "–", "–", "–", "*not run*")]


def _needs(found: Experiment, scale: Any) -> str:
    jobs = found.plan(scale)
    needs = sorted({f"`{need}`" for job in jobs for need in job.needs})
    hours = sum(job.gpu_minutes for job in jobs) / 60
    return f"{len(jobs)} jobs, {_hours(hours)}; {', '.join(needs) or 'no data sets'}" if jobs else "none"


def _hours(hours: float) -> str:
    """The time of all jobs, if none is stored and each trains its own network.

    >>> _hours(0.0), _hours(0.833), _hours(1330.4)
    ('seconds', 'at most 0.83 GPU hours', 'at most 1,330 GPU hours')
    """
    if not hours:
        return "seconds"
    return f"at most {hours:,.0f} GPU hours" if hours >= 10 else f"at most {hours:.2g} GPU hours"


def committed() -> dict[str, str]:
    """The pages that are files of docs/: the overview, and those of vitlab's own experiments."""
    own = {f"papers/{name}.md" for name in all_records() if not experiment(name).origin}
    return {"papers.md": overview(), **{path: text for path, text in pages().items() if path in own}}


if __name__ == "__main__":
    (DOCS / "papers").mkdir(exist_ok=True)
    for path, text in committed().items():
        (DOCS / path).write_text(text, encoding="utf-8")
