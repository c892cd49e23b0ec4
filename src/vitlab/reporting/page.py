"""The page: a summary, a section for each kind, provenance; one file that fetches nothing and runs no one's strings."""

from __future__ import annotations

import base64
import hashlib
import html
import importlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from vitlab.core.measurement import Measurement
from vitlab.reporting.comparison import compare, numbers
from vitlab.reporting.default_drawing import draw_by_axes
from vitlab.reporting.drawing import Figure, draw
from vitlab.reporting.judging import Difference, Number
from vitlab.reporting.models import Named, name_models
from vitlab.reporting.plot_data import to_json
from vitlab.reporting.sections import PICTURES, Section, label_models, sort
from vitlab.reporting.summary import Weights, summarise
from vitlab.reporting.words import value_in_words

TEMPLATES = Path(__file__).resolve().parent / "templates"

#: The height of a figure that does not say its own, and of HTML that is no figure, in pixels.
HEIGHT, FRAGMENT = 420, 800


def render(measurements: Sequence[Measurement], title: str) -> str:
    """The whole page as text.

    Args:
        measurements: at least one; the first model is the baseline, and repeats of one model are averaged.
        title: its heading.
    """
    named = name_models(measurements)
    labels = label_models(named.measurements)
    sections = sort(named.measurements, labels)
    differences = [compare(section) for section in sections]
    every = [each for found in differences for each in found]
    return _fill(
        "page.html.j2",
        title=title,
        labels=labels,
        summary=summarise(list(labels.values()), sections, every, _weights(named, labels)),
        sections=[_section(*each) for each in zip(sections, differences, strict=True)],
        provenance=_provenance(sections),
    )


def notebook(measurement: Measurement) -> str:
    """The figures of one measurement for a cell of a notebook.

    They stand in a frame of their own that the notebook's page cannot be reached from, and bring their own copy of
    plotly (5 MB), so that the cell shows them without a network too.
    """
    labels = label_models([measurement])
    section = _section(sort([measurement], labels)[0], [])
    page = _fill("cell.html.j2", title=measurement.kind, labels=labels, section=section)
    shown = [FRAGMENT] if section["fragment"] else [figure["height"] + 110 for figure in section["figures"][:2]]
    height = 100 + sum(shown)
    look = f"width:100%;height:{height}px;border:0"
    return f'<iframe sandbox="allow-scripts allow-downloads" style="{look}" srcdoc="{html.escape(page)}"></iframe>'


def _fill(template: str, **what: Any) -> str:
    from jinja2 import Environment, FileSystemLoader
    from plotly.offline import get_plotlyjs

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    plotly, own = get_plotlyjs(), _scripts()
    scripts = [plotly, own["csv.js"], own["page.js"]]
    page = environment.get_template(template)
    return page.render(policy=_policy([plotly, *own.values()]), scripts=scripts, style=_text("page.css"), **what)


def _weights(named: Named, labels: Mapping[str, str]) -> Weights:
    origins = {labels[name]: origin for name, origin in named.origins.items()}
    return Weights(origins, [labels[name] for name in named.untrained], named.remarks)


def _section(section: Section, differences: Sequence[Difference]) -> dict[str, Any]:
    tables = {each.subject: numbers(each) for each in section.averaged()}
    names = list(dict.fromkeys(name for table in tables.values() for name in table))
    against = {(each.label, each.name): each for each in differences}
    fragment, figures, note = _drawn(section)
    return {
        "title": section.title,
        "file": f"{section.kind}{'-' if section.variant else ''}{section.variant}",
        "fragment": fragment,
        "figures": [_figure(each) for each in figures],
        "note": note,
        "labels": list(tables),
        "rows": [
            {
                "name": value_in_words(section.kind, name),
                "cells": [_cell(tables[m].get(name), against.get((m, name))) for m in tables],
            }
            for name in names
        ],
        "repeats": max(map(len, section.repeats.values())),
    }


def _drawn(section: Section) -> tuple[str, list[Figure], str]:
    """HTML or figures; values of another version, or of someone else, are drawn by their axes, with a note."""
    found = section.averaged()
    try:
        if section.kind == "attention_view":  # no plot; its script runs because it stands in `templates/` to the letter
            return importlib.import_module("vitlab.reporting.attention_view").render(found), [], ""
        return "", draw(section.kind, found), ""
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        note = f"The drawing of {section.kind} cannot draw these values ({type(error).__name__}: {error})"
        if section.kind in PICTURES:
            return "", [], f"{note}."
        return "", draw_by_axes(found), f"{note}; each is drawn by its axes instead."


def _figure(figure: Figure) -> dict[str, Any]:
    layout = figure.plot.to_plotly_json()["layout"]
    panels = sum(key.startswith(("xaxis", "scene", "polar")) for key in layout)
    mosaic = "scaleanchor" in layout.get("yaxis", {})  # squares would shrink to stamps
    spatial = any(key.startswith("scene") for key in layout)
    return {
        "finding": figure.finding,
        "paper": figure.paper,
        "plot": to_json(figure.plot),
        "height": int(layout.get("height") or HEIGHT),
        "wide": panels > 1 or mosaic,
        "arrows": f"Left and right arrow keys: {'turn it' if spatial else 'go from point to point'}",
    }


def _cell(number: Number | None, difference: Difference | None) -> dict[str, str]:
    """A number of the table, with its difference to the baseline."""
    if number is None:
        return {"value": "–"}
    known = number.half_width == number.half_width  # not NaN
    cell = {"value": f"{number.value:.4g}" + (f" ± {number.half_width:.2g}" if known else "")}
    if difference is not None:
        sure = difference.half_width == difference.half_width
        cell["difference"] = f"{difference.value:+.3g}" + (f" ± {difference.half_width:.2g}" if sure else "")
        cell["verdict"] = difference.verdict
    return cell


def _provenance(sections: Sequence[Section]) -> dict[str, Any]:
    """What all measurements share once, then what each kind and model has of its own, its repeats together."""
    found = [(section.title, each) for section in sections for each in section.averaged()]
    notes = [{"settings": dict(each.settings), **each.provenance} for _, each in found]
    common = {key: said for key, said in notes[0].items() if all(key in n and n[key] == said for n in notes)}
    rows = [
        {
            "kind": title,
            "label": measurement.subject,
            "own": {key: _said(said) for key, said in note.items() if key not in common and said not in ({}, "", None)},
        }
        for (title, measurement), note in zip(found, notes, strict=True)
    ]
    return {"common": {key: _said(said) for key, said in common.items() if said not in ({}, "", None)}, "rows": rows}


def _said(value: Any) -> str:
    """A note of the provenance as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_said(each)}" for key, each in value.items())
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(dict.fromkeys(value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _policy(scripts: Sequence[str]) -> str:
    """A content security policy under which these scripts run, no others, and nothing is fetched."""
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
