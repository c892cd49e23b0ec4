"""A plotly figure as a small SVG without scripts, for notebooks. It has lines, markers, bars, bands and matrices.

Matrices and surfaces are pictures of their colours. What is not supported, such as hover labels, is left out.
"""

from __future__ import annotations

import base64
import html
import io
import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from vitlab.reporting.drawing import COLOURS, GREY
from vitlab.reporting.plot_data import plain
from vitlab.reporting.static_axes import Axis, Extent

#: The width of the drawing, and the most points of a trace.
WIDTH, POINTS = 640, 300

_MARGIN = {"l": 56.0, "r": 14.0, "t": 34.0, "b": 44.0}
_DASHES = {"dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3", "longdash": "11 4", "longdashdot": "11 3 2 3"}
#: The width of a letter of a tick, in pixels, and the most letters of a label.
_LETTER, _MOST = 6.2, 18
_FAINT = 'stroke="#888888" stroke-opacity="0.25"'


def svg(plot: Any) -> str:
    """A plotly figure as an SVG element of its height; text has the colour of its surroundings."""
    figure = plain(plot.to_plotly_json())
    data, layout = figure["data"], figure["layout"]
    for trace in data:
        _name_categories(trace, layout)
    height = min(560.0, float(layout.get("height") or 360))
    axes = _axes(data, layout, WIDTH, height, _MARGIN["l"])
    left = max([_MARGIN["l"], *(_beside(up) for across, up in axes.values() if across.start <= _MARGIN["l"] + 1)])
    axes = _axes(data, layout, WIDTH, height, left)
    drawn = [_frame(*pair) for pair in axes.values()]
    offsets = _bar_offsets(data, layout)
    for index, trace in enumerate(data):
        trace |= _colour_axis(trace, layout)
        pair = axes[_pair(trace)]
        drawn.append(_clipped(_trace(trace, *pair, offsets.get(index, (0.0, 0.8))), *pair))
    drawn += [_annotation(each, WIDTH, height, left) for each in layout.get("annotations") or () if each.get("text")]
    drawn.append(_legend(data, layout, left))
    style = 'font-family="system-ui, sans-serif" font-size="12" style="max-width:100%;height:auto"'
    size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} {style}>{"".join(drawn)}</svg>'


def _pair(trace: dict[str, Any]) -> tuple[str, str]:
    """The names of the axes of a trace; those of a surface are the scene that it is in."""
    scene = trace.get("scene") or ("scene" if trace.get("type") == "surface" else "")
    if scene:
        return f"{scene} x", f"{scene} y"
    return str(trace.get("xaxis") or "x"), str(trace.get("yaxis") or "y")


def _name_categories(trace: dict[str, Any], layout: dict[str, Any]) -> None:
    """Turn the coordinates on categorical axes into text."""
    for name, letter in zip(_pair(trace), "xy", strict=True):
        if _about(layout, name, letter).get("type") == "category" and trace.get(letter) is not None:
            trace[letter] = [None if each is None else str(each) for each in trace[letter]]


def _colour_axis(trace: dict[str, Any], layout: dict[str, Any]) -> dict[str, Any]:
    """The colour scale and its limits of a trace that shares them with others."""
    shared = layout.get(str(trace.get("coloraxis"))) or {}
    return {key: shared[key] for key in ("cmin", "cmax", "colorscale") if key in shared}


def _axes(
    data: Sequence[dict[str, Any]], layout: dict[str, Any], width: float, height: float, margin: float
) -> dict[tuple[str, str], tuple[Axis, Axis]]:
    """The axes of each pair of names; `margin` is the space left of the first."""
    extents: dict[tuple[str, str], tuple[Extent, Extent]] = {}
    for trace in data:
        across, up = extents.setdefault(_pair(trace), (Extent(), Extent()))
        x, y = _coordinates(trace)
        across.values += x
        up.values += [*y, *_ends_of_bars(trace), *([0.0] if trace.get("type") == "bar" else [])]
    inner = width - margin - _MARGIN["r"], height - _MARGIN["t"] - _MARGIN["b"]
    found = {}
    for (x_name, y_name), (across, up) in extents.items():
        x_about, y_about = (_about(layout, name, letter) for name, letter in ((x_name, "x"), (y_name, "y")))
        left, right = (margin + end * inner[0] for end in x_about.get("domain") or (0.0, 1.0))
        bottom, top = (_MARGIN["t"] + (1 - end) * inner[1] for end in y_about.get("domain") or (0.0, 1.0))
        found[x_name, y_name] = across.axis(x_about, left, right), up.axis(y_about, bottom, top)
    return found


def _ends_of_bars(trace: dict[str, Any]) -> list[float]:
    """The ends of the error bars of a trace that are known."""
    return [end for _, low, high in _error_ends(trace) for end in (low, high)]


def _beside(up: Axis) -> float:
    """The space that the labels and the title of an axis take beside it, in pixels."""
    letters = max((min(len(text), _MOST) for _, text in up.ticks), default=0)
    return 12.0 + _LETTER * letters + (20.0 if up.title else 0.0)


def _clipped(drawn: str, across: Axis, up: Axis) -> str:
    """What is drawn inside the axes; markers at the edge are not cut."""
    (left, right), (top, bottom) = sorted((across.start, across.end)), sorted((up.start, up.end))
    x, y, width, height = left - 5, top - 5, right - left + 10, bottom - top + 10
    view = f'viewBox="{x:.1f} {y:.1f} {width:.1f} {height:.1f}"'
    size = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f"<svg {size} {view}>{drawn}</svg>" if drawn else ""


def _about(layout: dict[str, Any], name: str, letter: str) -> dict[str, Any]:
    """The plotly description of an axis."""
    if " " not in name:
        return dict(layout.get(name.replace(letter, f"{letter}axis", 1)) or {})
    scene = layout.get(name.split()[0]) or {}
    title = (scene.get(f"{letter}axis") or {}).get("title") or {}
    return {"domain": (scene.get("domain") or {}).get(letter), "title": title}


def _coordinates(trace: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """All x and y of a trace; the edges of a matrix."""
    if trace.get("z") is not None:
        return _edges(trace, "x"), _edges(trace, "y")
    if trace.get("r") is not None:
        turned = [(r, math.radians(a)) for r, a in zip(trace["r"], trace["theta"], strict=False) if r is not None]
        return [r * math.cos(a) for r, a in turned], [r * math.sin(a) for r, a in turned]
    y = list(trace.get("y") or ())
    return list(trace.get("x") or range(len(y))), y


def _edges(trace: dict[str, Any], letter: str) -> list[Any]:
    """The labels of the rows or columns of a matrix, or the outer edges of its cells."""
    count = len(trace["z"]) if letter == "y" else len(trace["z"][0])
    given = trace.get(letter)
    if given is not None and any(isinstance(each, str) for each in given):
        return list(given)
    if given is not None:
        step = (given[-1] - given[0]) / max(1, count - 1) if count > 1 else 1.0
        return [given[0] - step / 2, given[-1] + step / 2]
    first, step = float(trace.get(f"{letter}0") or 0.0), float(trace.get(f"d{letter}") or 1.0)
    return [first - step / 2, first + (count - 0.5) * step]


def _frame(across: Axis, up: Axis) -> str:
    """Grid lines, labels of ticks and titles."""
    parts = []
    for place, text in across.ticks:
        x = across.start + (place - across.low) / ((across.high - across.low) or 1) * (across.end - across.start)
        if min(across.start, across.end) - 1 <= x <= max(across.start, across.end) + 1:
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{up.start:.1f}" y2="{up.end:.1f}" {_FAINT}/>')
            parts.append(_text(x, up.start + 15, text, "middle", 11, most=14))
    for place, text in up.ticks:
        y = up.start + (place - up.low) / ((up.high - up.low) or 1) * (up.end - up.start)
        if min(up.start, up.end) - 1 <= y <= max(up.start, up.end) + 1:
            parts.append(f'<line x1="{across.start:.1f}" x2="{across.end:.1f}" y1="{y:.1f}" y2="{y:.1f}" {_FAINT}/>')
            parts.append(_text(across.start - 5, y + 4, text, "end", 11, most=_MOST))
    parts.append(_text((across.start + across.end) / 2, up.start + 32, across.title, "middle", 12))
    middle = (up.start + up.end) / 2
    if up.title:
        place = across.start - max(42.0, _beside(up) - 12)
        turn = f'transform="rotate(-90 {place:.1f} {middle:.1f})"'
        parts.append(f"<g {turn}>{_text(place, middle, up.title, 'middle', 12)}</g>")
    return "".join(parts)


def _trace(trace: dict[str, Any], across: Axis, up: Axis, bar: tuple[float, float]) -> str:
    if trace.get("z") is not None:
        return _matrix(trace, across, up)
    if trace.get("type") == "bar":
        return _bars(trace, across, up, *bar)
    return _scatter(trace, across, up)


def _scatter(trace: dict[str, Any], across: Axis, up: Axis) -> str:
    x, y = _coordinates(trace)
    every = max(1, -(-len(y) // POINTS))
    points = [(across.pixel(a), up.pixel(b)) for a, b in zip(x[::every], y[::every], strict=False)]
    known = [(a, b) for a, b in points if math.isfinite(a) and math.isfinite(b)]
    if not known:
        return ""
    stroke = trace.get("line") or {}
    colour, mode = _colour(trace), str(trace.get("mode") or "lines")
    parts = [_error_bars(trace, across, up, colour)] if every == 1 else []
    if trace.get("fill") == "toself":
        shape = " ".join(f"{a:.1f},{b:.1f}" for a, b in known)
        return f'<polygon points="{shape}" fill="{_safe(trace.get("fillcolor"))}"/>'
    if "lines" in mode:
        points = _steps(points) if stroke.get("shape") == "hvh" else points
        dash = _DASHES.get(str(stroke.get("dash")), "")
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        path = "".join(
            f"{'L' if i and math.isfinite(points[i - 1][1]) else 'M'}{a:.1f} {b:.1f}"
            for i, (a, b) in enumerate(points)
            if math.isfinite(a) and math.isfinite(b)
        )
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dashed}/>')
    if "markers" in mode:
        look = trace.get("marker") or {}
        size = look.get("size", 6)
        radius = (size if isinstance(size, (int, float)) else 6) / 2.2
        faint = f' fill-opacity="{look["opacity"]}"' if isinstance(look.get("opacity"), (int, float)) else ""
        dots = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius:.1f}"/>' for a, b in known)
        parts.append(f'<g fill="{colour}"{faint}>{dots}</g>')
    return "".join(parts)


def _steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The corners of a line that changes its height halfway between two points."""
    corners = list(points[:1])
    for (before, low), (after, high) in pairwise(points):
        middle = (before + after) / 2
        corners += [(middle, low), (middle, high), (after, high)]
    return corners


def _error_bars(trace: dict[str, Any], across: Axis, up: Axis, colour: str, shift: float = 0.0) -> str:
    parts = []
    for x, low, high in _error_ends(trace):
        place, top, bottom = across.pixel(x) + shift, up.pixel(high), up.pixel(low)
        if all(map(math.isfinite, (place, top, bottom))):
            parts.append(f"M{place:.1f} {top:.1f}V{bottom:.1f}")
    return f'<path d="{"".join(parts)}" stroke="{colour}" stroke-opacity="0.7"/>' if parts else ""


def _error_ends(trace: dict[str, Any]) -> list[tuple[Any, float, float]]:
    """The x, the lower and the upper end of each error bar that is known."""
    bars = trace.get("error_y") or {}
    above = bars.get("array") or ()
    below = bars.get("arrayminus") or above
    each = zip(trace.get("x") or (), trace.get("y") or (), below, above, strict=False)
    return [(x, y - low, y + high) for x, y, low, high in each if None not in (y, low, high)]


def _bar_offsets(data: Sequence[dict[str, Any]], layout: dict[str, Any]) -> dict[int, tuple[float, float]]:
    """The shift and the width of the bars of each trace, relative to the distance of categories."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, trace in enumerate(data):
        if trace.get("type") == "bar":
            groups.setdefault(_pair(trace), []).append(index)
    if layout.get("barmode") == "overlay":
        return {index: (0.0, 0.8) for group in groups.values() for index in group}
    width = 0.8
    return {
        index: (width * ((place + 0.5) / len(group) - 0.5), width / len(group))
        for group in groups.values()
        for place, index in enumerate(group)
    }


def _bars(trace: dict[str, Any], across: Axis, up: Axis, shift: float, share: float) -> str:
    unit = abs(across.end - across.start) / (abs(across.high - across.low) or 1.0)
    colour, wide = _colour(trace), max(1.0, unit * share * 0.95)
    parts = []
    for x, y in zip(trace.get("x") or (), trace.get("y") or (), strict=False):
        left, top, base = across.pixel(x) + unit * shift - wide / 2, up.pixel(y), up.pixel(0.0)
        if all(map(math.isfinite, (left, top, base))):
            size = f'width="{wide:.1f}" height="{abs(base - top):.1f}"'
            parts.append(f'<rect x="{left:.1f}" y="{min(top, base):.1f}" {size}/>')
    bars = f'<g fill="{colour}">{"".join(parts)}</g>'
    return bars + _error_bars(trace, across, up, GREY, unit * shift)


def _matrix(trace: dict[str, Any], across: Axis, up: Axis) -> str:
    """A picture of the colours of a matrix, its first row at the bottom unless the axis is reversed."""
    z = np.array(trace.get("surfacecolor") or trace["z"], dtype=float)
    low, high = (_limit(trace, names, z, ends) for names, ends in ((("zmin", "cmin"), min), (("zmax", "cmax"), max)))
    pixels = coloured((z - low) / ((high - low) or 1.0), trace.get("colorscale") or "Viridis")
    (left, right), (first, last) = (_ends(_edges(trace, letter), axis) for letter, axis in (("x", across), ("y", up)))
    if first > last:
        pixels, (first, last) = pixels[::-1], (last, first)
    size = f'x="{left:.1f}" y="{first:.1f}" width="{right - left:.1f}" height="{last - first:.1f}"'
    look = 'preserveAspectRatio="none" style="image-rendering:pixelated"'
    return f'<image href="{png(pixels)}" {size} {look}/>'


def _ends(edges: Sequence[Any], axis: Axis) -> tuple[float, float]:
    """The pixels of the first and the last edge of the cells of a matrix."""
    if not any(isinstance(edge, str) for edge in edges):
        return axis.pixel(edges[0]), axis.pixel(edges[-1])
    half = 0.5 * (axis.end - axis.start) / ((axis.high - axis.low) or 1.0)
    return axis.pixel(edges[0]) - half, axis.pixel(edges[-1]) + half


def _limit(trace: dict[str, Any], names: Sequence[str], z: np.ndarray, end: Any) -> float:
    given = next((trace[name] for name in names if trace.get(name) is not None), None)
    known = z[np.isfinite(z)]
    return float(given) if given is not None else float(end(known)) if known.size else 0.0


def coloured(share: np.ndarray, name: Any = "Viridis") -> np.ndarray:
    """The colours (h, w, 4), uint8, of shares from 0 to 1; transparent where they are not known.

    Args:
        share: (h, w).
        name: a colour scale of plotly, or its steps.
    """
    from plotly.colors import get_colorscale, sample_colorscale

    share = np.clip(share, 0, 1)
    scale = get_colorscale(name) if isinstance(name, str) else name
    steps = sample_colorscale(scale, [i / 63 for i in range(64)])
    table = np.array([[int(float(part)) for part in re.findall(r"[\d.]+", step)[:3]] for step in steps], dtype=np.uint8)
    alpha = np.where(np.isfinite(share), 255, 0).astype(np.uint8)[..., None]
    return np.concatenate((table[np.nan_to_num(63 * share).astype(int)], alpha), axis=-1)


def png(pixels: np.ndarray) -> str:
    """Pixels (h, w, 3 or 4), uint8, as a PNG in a data URI."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels, dtype=np.uint8)).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _annotation(about: dict[str, Any], width: float, height: float, left: float) -> str:
    if about.get("xref") not in (None, "paper") or about.get("yref") not in (None, "paper"):
        return ""
    inner = width - left - _MARGIN["r"], height - _MARGIN["t"] - _MARGIN["b"]
    x = left + float(about.get("x") or 0) * inner[0]
    y = _MARGIN["t"] + (1 - float(about.get("y") or 0)) * inner[1]
    return _text(x, y - 5, str(about["text"]), "middle", 12)


def _legend(data: Sequence[dict[str, Any]], layout: dict[str, Any], left: float) -> str:
    """The names of the traces above the plot, in one line."""
    named = [trace for trace in data if trace.get("name") and trace.get("showlegend") is not False]
    named = [trace for trace in named if trace.get("z") is None]
    if layout.get("showlegend") is False or len(named) < 2:
        return ""
    parts, x = [], left
    for trace in named[:6]:
        text = _words(str(trace["name"]), 28)
        parts.append(f'<rect x="{x:.0f}" y="6" width="14" height="4" fill="{_colour(trace)}"/>')
        parts.append(_text(x + 18, 12, text, "start", 11))
        x += 34 + 6.2 * len(text)
    return "".join(parts)


def _colour(trace: dict[str, Any]) -> str:
    given = (trace.get("line") or {}).get("color") or (trace.get("marker") or {}).get("color")
    return _safe(given) if isinstance(given, str) else COLOURS[0]


def _safe(colour: object) -> str:
    return html.escape(str(colour or GREY), quote=True)


def _text(x: float, y: float, text: str, anchor: str, size: int, most: int = 60) -> str:
    words = html.escape(_words(text, most))
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="currentColor">{words}</text>'


def _words(text: str, most: int) -> str:
    """Text of plotly without its tags and entities, shortened."""
    bare = html.unescape(re.sub(r"<[^>]*>", " ", text))
    return bare if len(bare) <= most else f"{bare[: most - 1]}…"
