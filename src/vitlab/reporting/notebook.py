"""One measurement in a notebook cell: a small static figure and its key numbers, without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure
from vitlab.reporting.number_text import value_text
from vitlab.reporting.rows import Row, rows
from vitlab.reporting.section_view import claim_of, draw_section
from vitlab.reporting.sections import label_models, sort
from vitlab.reporting.static_figure import png, svg

#: The most numbers, and the most pictures, of a cell.
_NUMBERS, _PICTURES = 4, 4


def notebook(measurement: Measurement) -> str:
    """A measurement as HTML for a notebook cell, less than 100 kB; `vitlab.report` writes the interactive figures."""
    (section,) = sort([measurement], label_models([measurement]))
    figures, _ = draw_section(section)
    plots = [each for each in figures if isinstance(each, Figure)]
    table = rows(section, (), [each.headline.row for each in plots])
    title = f"<strong>{escape(section.title[:1].upper() + section.title[1:])}</strong> · {escape(measurement.subject)}"
    parts = [f"<p>{title}<br>{escape(claim_of(figures, table[0] if table else None))}</p>"]
    parts += [svg(each.plot) for each in plots[:1]] or [_pictures(measurement)]
    parts.append(_table(table[:_NUMBERS]))
    return f'<div style="max-width:660px">{"".join(parts)}</div>'


def _table(table: Sequence[Row]) -> str:
    lines = [
        f"<tr><td>{escape(row.title)}</td><td>{escape(value_text(number, row.scale))}</td></tr>"
        for row in table
        for number in row.numbers.values()
    ]
    return f"<table>{''.join(lines)}</table>" if lines else ""


def _pictures(measurement: Measurement) -> str:
    """The first pictures of a measurement that has any, reduced to at most 64 pixels a side."""
    stored = measurement.values.get("pictures", measurement.values.get("image"))
    if stored is None or stored.ndim != 4 or stored.dtype != np.uint8:
        return ""
    step = max(1, -(-max(stored.shape[1:3]) // 64))
    shown = [png(picture[::step, ::step]) for picture in stored[:_PICTURES]]
    return "".join(f'<img src="{each}" alt="picture {i + 1}" height="96"> ' for i, each in enumerate(shown))
