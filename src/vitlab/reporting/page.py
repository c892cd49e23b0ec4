"""Render the HTML page: a summary, one section per kind of measurement, and provenance.

The page is one file. It makes no requests, and a content security policy allows its own scripts only.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from vitlab.core.descriptions import origin
from vitlab.core.measurement import Measurement
from vitlab.reporting.comparison import compare, numbers
from vitlab.reporting.default_drawing import draw_by_axes
from vitlab.reporting.differences import Difference, Number
from vitlab.reporting.drawing import Figure, Fragment, draw
from vitlab.reporting.models import NamedModels, name_models
from vitlab.reporting.plot_data import to_json
from vitlab.reporting.sections import Section, label_models, sort
from vitlab.reporting.summary import Weights, summarise
from vitlab.reporting.words import value_in_words

TEMPLATES = Path(__file__).resolve().parent / "templates"

#: The height of a plot that does not declare one, in pixels.
HEIGHT = 420


def render(measurements: Sequence[Measurement], title: str) -> str:
    """The HTML page as a string.

    Args:
        measurements: at least one; the first model is the baseline, and repeats of one model are averaged.
        title: the heading of the page.
    """
    return fill_template("page.html.j2", title=title, **contents(measurements))


def contents(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """The labels, summary, sections and provenance of measurements, for a template."""
    named = name_models(measurements)
    labels = label_models(named.measurements)
    sections = sort(named.measurements, labels)
    differences = [compare(section) for section in sections]
    every = [each for of_section in differences for each in of_section]
    return {
        "labels": labels,
        "summary": summarise(list(labels.values()), sections, every, _weights(named, labels)),
        "sections": [_section(*each) for each in zip(sections, differences, strict=True)],
        "provenance": _provenance(sections),
    }


def notebook(measurement: Measurement) -> str:
    """The figures of one measurement as HTML for a notebook cell.

    The figures are in a sandboxed frame that has no access to the notebook's page. The frame holds its own copy of
    plotly (5 MB), so that the cell works without a network.
    """
    labels = label_models([measurement])
    section = _section(sort([measurement], labels)[0], [])
    page = fill_template("cell.html.j2", title=measurement.kind, labels=labels, section=section)
    height = 100 + sum(figure["height"] + (110 if figure["plot"] else 0) for figure in section["figures"][:2])
    style = f"width:100%;height:{height}px;border:0"
    return f'<iframe sandbox="allow-scripts allow-downloads" style="{style}" srcdoc="{html.escape(page)}"></iframe>'


def fill_template(template: str, **values: Any) -> str:
    """Render a template with the styles and scripts of all pages."""
    from jinja2 import Environment, FileSystemLoader
    from plotly.offline import get_plotlyjs

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    plotly, own = get_plotlyjs(), _scripts()
    scripts = [plotly, own["csv.js"], own["page.js"]]
    page = environment.get_template(template)
    return page.render(policy=_policy([plotly, *own.values()]), scripts=scripts, style=_text("page.css"), **values)


def _weights(named: NamedModels, labels: Mapping[str, str]) -> Weights:
    origins = {labels[name]: origin for name, origin in named.origins.items()}
    return Weights(origins, [labels[name] for name in named.untrained], named.remarks)


def _section(section: Section, differences: Sequence[Difference]) -> dict[str, Any]:
    tables = {each.subject: numbers(each) for each in section.averaged()}
    names = list(dict.fromkeys(name for table in tables.values() for name in table))
    by_cell = {(each.label, each.name): each for each in differences}
    figures, note = _draw_section(section)
    rows = [
        {
            "name": value_in_words(section.kind, name),
            "cells": [_cell(tables[m].get(name), by_cell.get((m, name))) for m in tables],
        }
        for name in names
    ]
    return {
        "title": section.title,
        "file": f"{section.kind}{'-' if section.variant else ''}{section.variant}",
        "figures": [_fragment(each) if isinstance(each, Fragment) else _figure(each) for each in figures],
        "note": note,
        "labels": list(tables),
        "rows": rows,
        "footnote": _footnote(section, rows),
    }


def _draw_section(section: Section) -> tuple[list[Figure | Fragment], str]:
    """The figures of a section and a note.

    Values that the drawing of their kind does not support, such as those of another version, are drawn by the names of
    their axes, and the note says so.
    """
    measurements = section.averaged()
    try:
        return draw(section.kind, measurements), ""
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        note = f"The drawing of {section.kind} cannot draw these values ({type(error).__name__}: {error})"
        if section.shows_pictures:
            return [], f"{note}."
        return [*draw_by_axes(measurements)], f"{note}; each value is drawn by its axes instead."


def _footnote(section: Section, rows: Sequence[Mapping[str, Any]]) -> str:
    """What ± and the numbers of a table mean, and the origin of extensions; empty if there is nothing to explain."""
    notes = []
    used = {"figures": origin("figures", section.kind)}
    for each in section.averaged():
        used |= each.provenance.get("extensions", {})
    added = [f"{name} ({where})" for name, where in sorted(used.items()) if where]
    if added:
        notes.append(f"From extensions: {', '.join(added)}.")
    if any("±" in text for row in rows for cell in row["cells"] for text in cell.values()):
        repeats = max(map(len, section.repeats.values()))
        notes.append(f"± is half of the 95 % interval{f', over up to {repeats} repeats' if repeats > 1 else ''}.")
    if any(dims[:1] == ("epoch",) for each in section.averaged() for dims in each.dims.values()):
        notes.append("Numbers by epoch are those of the last epoch.")
    return " ".join(notes)


def _fragment(fragment: Fragment) -> dict[str, Any]:
    return {"plot": "", "html": fragment.html, "height": fragment.height}


def _figure(figure: Figure) -> dict[str, Any]:
    layout = figure.plot.to_plotly_json()["layout"]
    panels = sum(key.startswith(("xaxis", "scene", "polar")) for key in layout)
    mosaic = "scaleanchor" in layout.get("yaxis", {})  # square tiles become too small in a narrow column
    spatial = any(key.startswith("scene") for key in layout)
    return {
        "finding": figure.finding,
        "paper": figure.paper,
        "plot": to_json(figure.plot),
        "height": int(layout.get("height") or HEIGHT),
        "wide": panels > 1 or mosaic,
        "arrows": f"Left and right arrow keys: {'rotate' if spatial else 'move between points'}",
    }


def _cell(number: Number | None, difference: Difference | None) -> dict[str, str]:
    """A table cell: the number and its difference from the baseline."""
    if number is None:
        return {"value": "–"}
    cell = {"value": f"{number.value:.4g}{_plus_minus(number.half_width)}"}
    if difference is not None:
        cell["difference"] = f"{difference.value:+.3g}{_plus_minus(difference.half_width)}"
        cell["verdict"] = difference.verdict
    return cell


def _plus_minus(half_width: float) -> str:
    return "" if math.isnan(half_width) else f" ± {half_width:.2g}"


def _provenance(sections: Sequence[Section]) -> dict[str, Any]:
    """Entries that all measurements share, then one row per kind and model; repeats are in one row."""
    measured = [(section.title, each) for section in sections for each in section.averaged()]
    notes = [{"settings": dict(each.settings), **each.provenance} for _, each in measured]
    common = {key: value for key, value in notes[0].items() if all(key in n and n[key] == value for n in notes)}
    rows = [
        {
            "kind": title,
            "label": measurement.subject,
            "own": _as_text({key: value for key, value in note.items() if key not in common}),
        }
        for (title, measurement), note in zip(measured, notes, strict=True)
    ]
    return {"common": _as_text(common), "rows": rows}


def _as_text(note: Mapping[str, Any]) -> dict[str, str]:
    return {key: _text_of(value) for key, value in note.items() if value not in ({}, "", None)}


def _text_of(value: Any) -> str:
    """A provenance entry as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text_of(each)}" for key, each in value.items())
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(dict.fromkeys(value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


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
