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
from vitlab.reporting.static_figure import coloured, png, svg

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
    """The first pictures of a measurement, reduced to at most 64 pixels a side, with attention maps if it has them."""
    stored = measurement.values.get("pictures", measurement.values.get("image"))
    if stored is None or stored.ndim != 4 or stored.dtype != np.uint8:
        return ""
    step = max(1, -(-max(stored.shape[1:3]) // 64))
    layers = _layers_with_maps(measurement)
    lines = []
    for index, picture in enumerate(stored[:_PICTURES]):
        maps = [(layer, png(coloured(_map(measurement, layer, index)))) for layer in layers]
        shown = [_image(png(picture[::step, ::step]), f"picture {index + 1}")]
        shown += [_image(each, f"attention map of {layer}, picture {index + 1}") for layer, each in maps]
        lines.append(" ".join(shown))
    if not layers:
        return " ".join(lines)
    source = "the class token" if _has_prefix(measurement, layers[0]) else "all queries"
    words = f"Attention of {source} in {', '.join(layers)}, mean over heads, each map relative to its largest value"
    return f"<p>{'<br>'.join(lines)}</p><p>{escape(words)}</p>"


def _image(source: str, words: str) -> str:
    look = 'style="height:96px;width:96px;object-fit:fill;image-rendering:pixelated;display:inline-block"'
    return f'<img src="{source}" alt="{escape(words)}" {look}>'


def _layers_with_maps(measurement: Measurement) -> list[str]:
    """The first, the middle and the last layer that has attention maps."""
    known = [str(layer) for layer in measurement.axes.get("layer", ()) if f"maps of {layer}" in measurement.values]
    return list(dict.fromkeys(known[at] for at in (0, len(known) // 2, -1))) if known else []


def _has_prefix(measurement: Measurement, layer: str) -> bool:
    return bool(np.shape(measurement.values.get(f"prefix of {layer}", ()))[-1:] > (0,))


def _map(measurement: Measurement, layer: str, index: int) -> np.ndarray:
    """The attention (h, w) from the class token, or from all queries where there is none, relative to its maximum."""
    maps, peaks = (np.asarray(measurement.values[f"{name} of {layer}"][index], float) for name in ("maps", "peak"))
    queries = slice(0, 1) if _has_prefix(measurement, layer) else slice(None)
    mean = (maps * peaks[..., None])[:, queries].mean((0, 1))
    grid = measurement.values["grid"][list(measurement.axes["layer"]).index(layer)]
    attention: np.ndarray = mean.reshape(tuple(int(side) for side in grid))
    return attention / (attention.max() or 1.0)
