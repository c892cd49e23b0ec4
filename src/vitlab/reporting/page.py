"""Render the HTML page: an overview, sections grouped by what they measure, and provenance.

The page is one file. It makes no requests, and a content security policy allows its own scripts only.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from vitlab.core.measurement import Measurement
from vitlab.reporting.comparison import compare
from vitlab.reporting.differences import Difference
from vitlab.reporting.drawing import COLOURS, DARK_COLOURS, DASHES
from vitlab.reporting.groups import group
from vitlab.reporting.models import NamedModels, name_models
from vitlab.reporting.number_text import minus
from vitlab.reporting.overview import line
from vitlab.reporting.provenance_text import collect
from vitlab.reporting.section_view import view
from vitlab.reporting.sections import data_set, label_models, sort
from vitlab.reporting.summary import Summary, Weights, summarise
from vitlab.reporting.words import PAPERS, glossary

TEMPLATES = Path(__file__).resolve().parent / "templates"


def render(measurements: Sequence[Measurement], title: str) -> str:
    """The HTML page as a string.

    Args:
        measurements: at least one; the first model is the baseline, and repeats of one model are averaged.
        title: the heading of the page.
    """
    found = contents(measurements)
    data = " ".join(data_set(measurement) for measurement in measurements)
    words = glossary([title, *(model["label"] for model in found["models"])], data)
    return fill_template("page.html.j2", title=title, glossary=words, papers=PAPERS, **found)


def contents(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """The models, summary, overview, groups of sections and provenance of measurements, for a template."""
    named = name_models(measurements)
    labels = label_models(named.measurements)
    shown = list(labels.values())
    ordered = group(sort(named.measurements, labels))
    groups: list[dict[str, Any]] = []
    every: list[Difference] = []
    number = 0
    for one in ordered:
        views = []
        for section in one.sections:
            number += 1
            differences = compare(section)
            every += differences
            views.append(view(number, section, differences, shown))
        _fill_rows(views)
        lines = [line(each["title"], each["id"], each["key"], shown) for each in views if each["key"] is not None]
        groups.append({"title": one.title, "id": f"group-{len(groups) + 1}", "sections": views, "lines": lines})
    sections = [section for one in ordered for section in one.sections]
    return {
        "models": [_model(label, index) for index, label in enumerate(shown)],
        "summary": _with_minus(summarise(shown, sections, every, _weights(named, labels))),
        "groups": groups,
        "overview": _columns([one for one in groups if one["lines"]]),
        "sections": [section for one in groups for section in one["sections"]],
        "provenance": collect(sections, {label: subject for subject, label in labels.items()}),
    }


def _columns(groups: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The groups of the overview in two columns of similar length, in their order."""
    columns: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    lengths = [0, 0]
    for one in sorted(groups, key=lambda one: -len(one["lines"])):
        shorter = lengths.index(min(lengths))
        lengths[shorter] += 1 + len(one["lines"])
        columns[shorter].append(one)
    return [sorted(column, key=groups.index) for column in columns if column]


def _fill_rows(sections: Sequence[dict[str, Any]]) -> None:
    """Mark a section that would be alone in a row of two columns: its figure and table are placed beside each other."""
    narrow = [section for section in sections if not section["wide"]]
    for section in sections:
        section["row"] = len(narrow) % 2 == 1 and section is narrow[-1]


def fill_template(template: str, **values: Any) -> str:
    """Render a template with the styles and scripts of all pages."""
    from jinja2 import Environment, FileSystemLoader
    from plotly.offline import get_plotlyjs

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["breakable"] = _breakable
    plotly, own = get_plotlyjs(), _scripts()
    scripts = [plotly, own["csv.js"], own["page.js"]]
    colours = {"light": " ".join(COLOURS), "dark": " ".join(DARK_COLOURS)}
    page = environment.get_template(template)
    policy, style = _policy([plotly, *own.values()]), _text("page.css")
    return page.render(policy=policy, scripts=scripts, style=style, colours=colours, **values)


def _breakable(name: str) -> Any:
    """A name as HTML in which lines break after underscores and before capitalised words, not anywhere.

    >>> str(_breakable("vit_tiny | <b>TokenPooling, ViT"))
    'vit_<wbr>tiny | &lt;b&gt;Token<wbr>Pooling, ViT'
    """
    from markupsafe import Markup, escape

    return Markup(re.sub(r"(?<=_)|(?<=[a-z])(?=[A-Z][a-z])", "<wbr>", str(escape(name))))


def _model(label: str, index: int) -> dict[str, Any]:
    """A model in the legend: its colours in both themes, and its dash."""
    place = index % len(COLOURS)
    return {"label": label, "light": COLOURS[place], "dark": DARK_COLOURS[place], "dash": _STROKES[DASHES[place]]}


#: Lengths of the strokes and gaps of a dash in the legend.
_STROKES = {"solid": "", "dash": "6 4", "dot": "2 3", "dashdot": "6 3 2 3", "longdash": "9 4", "longdashdot": "9 3 2 3"}


def _weights(named: NamedModels, labels: Mapping[str, str]) -> Weights:
    origins = {labels[name]: origin for name, origin in named.origins.items()}
    return Weights(origins, [labels[name] for name in named.untrained], named.remarks)


def _with_minus(summary: Summary) -> Summary:
    return Summary(
        summary.facts, summary.heading, [minus(each) for each in summary.findings], summary.caution, summary.warnings
    )


def _policy(scripts: Sequence[str]) -> str:
    """A content security policy that allows these scripts by their hashes and no requests."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _scripts() -> dict[str, str]:
    return {path.name: _text(path.name) for path in sorted(TEMPLATES.glob("*.js"))}


@cache
def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")
