"""The page: sections by kind, figures inline, provenance at the end, everything escaped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import draw


def render(measurements: Sequence[Measurement], title: str) -> str:
    """The whole page as text."""
    from jinja2 import Environment, PackageLoader
    from plotly.offline import get_plotlyjs

    kinds = list(dict.fromkeys(measurement.kind for measurement in measurements))
    sections = [_section(kind, [m for m in measurements if m.kind == kind]) for kind in kinds]
    environment = Environment(
        loader=PackageLoader("vitlab.reporting"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    subjects = list(dict.fromkeys(measurement.subject for measurement in measurements))
    page = environment.get_template("page.html.j2")
    return page.render(title=title, subjects=subjects, sections=sections, plotly=get_plotlyjs())


def _section(kind: str, measurements: Sequence[Measurement]) -> dict[str, Any]:
    return {
        "kind": kind,
        "title": kind.replace("_", " "),
        "figures": [_json(figure) for figure in draw(kind, measurements)],
        "rows": [
            {
                "subject": measurement.subject,
                "values": {name: _summary(measurement, name) for name in measurement.values},
                "provenance": json.dumps(
                    {"settings": dict(measurement.settings), **measurement.provenance}, indent=1, ensure_ascii=False
                ),
            }
            for measurement in measurements
        ],
        "names": list(dict.fromkeys(name for measurement in measurements for name in measurement.values)),
    }


def _json(figure: Any) -> str:
    """A figure as JSON that can stand inside a script element, whatever strings it holds."""
    text: str = figure.to_json()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _summary(measurement: Measurement, name: str) -> str:
    """One number for the table: the mean over all axes, or, over epochs, the last."""
    value = np.asarray(measurement.values[name])
    if not np.issubdtype(value.dtype, np.number) or np.isnan(value.astype(float)).all():
        return "–"
    if measurement.dims[name][:1] == ("epoch",):
        value = value[-1]
    return f"{float(np.nanmean(value)):.4g}"
