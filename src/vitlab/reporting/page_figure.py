"""A figure as data for a template: its plotly JSON without the legend that all figures share, and its size."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

from vitlab.reporting.drawing import Figure, Fragment, plain
from vitlab.reporting.number_text import minus
from vitlab.reporting.plot_data import to_json

#: The height of a plot that does not declare one, and of a single panel without a legend, in pixels.
HEIGHT, SINGLE = 420, 264

#: The size of letters, and the most letters of a line below one of two panels.
FONT, LINE = 12, 26

#: The width of a letter in the title of an axis, in pixels.
_LETTER = 7.0

#: The space above a plot without a legend, in pixels: without and with titles of panels.
_ABOVE, _ABOVE_TITLES = 12, 36

#: The space above a plot with a legend of other entries than models, in pixels: without and with titles of panels.
_LEGEND, _LEGEND_TITLES = 40, 76


def view(figure: Figure | Fragment, shared: Sequence[str]) -> dict[str, Any]:
    """A figure for the template of a section.

    Args:
        figure: the figure.
        shared: labels of models in the legend of the page, in the order of their colours; empty if the figure keeps its
            own legend.
    """
    if isinstance(figure, Fragment):
        return {"plot": "", "html": figure.html, "height": figure.height, "panels": 1, "title": ""}
    plot = figure.plot.to_plotly_json()
    layout = plot["layout"]
    panels = sum(key.startswith(("xaxis", "scene", "polar")) for key in layout)
    layout["font"] = {**layout.get("font", {}), "size": FONT}
    if shared:
        _share_legend(plot, shared, panels)
    _move_titles(layout)
    if panels == 2:
        _wrap_titles(layout)
    _wrap_side_titles(layout)
    mosaic = "scaleanchor" in layout.get("yaxis", {})  # square tiles become too small in a narrow column
    spatial = any(key.startswith("scene") for key in layout)
    return {
        "title": minus(figure.headline.title),
        "sentence": minus(figure.finding),
        "paper": figure.paper,
        "plot": to_json(plot),
        "height": int(layout.get("height") or HEIGHT),
        "panels": 3 if mosaic else panels,
        "arrows": f"Left and right arrow keys: {'rotate' if spatial else 'move between points'}",
    }


def _share_legend(plot: dict[str, Any], shared: Sequence[str], panels: int) -> None:
    """Remove the models from the legend; without other entries, remove the legend and the space above the plot."""
    layout, names = plot["layout"], {plain(label) for label in shared}
    for trace in plot["data"]:
        if trace.get("name") in names:
            trace["showlegend"] = False
    entries = [trace for trace in plot["data"] if trace.get("name") and _in_legend(trace)]
    height, margin = int(layout.get("height") or HEIGHT), dict(layout.get("margin") or {})
    above = int(margin.get("t", 0))
    layout["showlegend"] = bool(entries)  # plotly hides the legend of a single entry
    titled = any(each.get("text") for each in layout.get("annotations") or ())
    room = (_LEGEND_TITLES if titled else _LEGEND) if entries else (_ABOVE_TITLES if titled else _ABOVE)
    margin["t"] = min(above, room)
    inner = SINGLE - _ABOVE if panels == 1 and height == HEIGHT else height - above
    layout["height"] = inner + margin["t"]
    layout["margin"] = margin


def _move_titles(layout: dict[str, Any]) -> None:
    """Move the titles of the x axes closer to them, and reduce the space below the plot."""
    margin, below = dict(layout.get("margin") or {}), 44
    if not any(key.startswith("xaxis") for key in layout) or margin.get("b", 0) <= below:
        return
    for key in [key for key in layout if key.startswith("xaxis")]:
        layout[key] = {**layout[key], "title": {**layout[key].get("title", {}), "standoff": 6}}
    layout["height"] = int(layout.get("height") or HEIGHT) - margin["b"] + below
    layout["margin"] = {**margin, "b": below}


def _wrap_titles(layout: dict[str, Any]) -> None:
    """Wrap the titles below two panels, which are beside each other in a narrow column."""
    for key in [key for key in layout if key.startswith("xaxis")]:
        title = layout[key].get("title", {})
        text = title.get("text") or ""
        if len(text) > LINE and "<" not in text and "&" not in text:
            layout[key] = {**layout[key], "title": {**title, "text": "<br>".join(textwrap.wrap(text, LINE))}}


def _wrap_side_titles(layout: dict[str, Any]) -> None:
    """Wrap titles of y axes that are longer than their axis: before a note or unit at the end, or between words."""
    margin = layout.get("margin") or {}
    inner = int(layout.get("height") or HEIGHT) - int(margin.get("t", 0)) - int(margin.get("b", 0))
    for key in [key for key in layout if key.startswith("yaxis")]:
        title, (low, high) = layout[key].get("title", {}), layout[key].get("domain") or (0.0, 1.0)
        text, most = title.get("text") or "", int(inner * (high - low) / _LETTER)
        if len(re.sub(r"<[^>]*>", "", text)) <= most or "<br>" in text:
            continue
        if "<" not in text and "&" not in text and " (" not in text:
            lines = textwrap.wrap(text, max(most, 8))
        else:
            before_end = r" (?=\([^()]*\)$)" if text.endswith(")") else r"(?<=,) (?=[^,]*$)"
            lines = re.split(before_end, text, maxsplit=1)
        layout[key] = {**layout[key], "title": {**title, "text": "<br>".join(lines)}}


def _in_legend(trace: dict[str, Any]) -> bool:
    return trace.get("showlegend") is not False and trace.get("type") not in ("heatmap", "surface", "contour")
