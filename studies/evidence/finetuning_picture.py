"""Plot of the paired differences of the fine-tuning experiments with their intervals, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from evidence.finetuning_results import (
    ARMS,
    CAMVID,
    CIFAR,
    HEADLINES,
    Comparison,
    Metric,
    Runs,
    compare,
    conditions,
    signed,
)
from evidence.picture import Scale

__all__ = ["draw", "drawn"]

WIDTH, LEFT, RIGHT, TOP = 900, 250, 690, 118
LINE, GAP, HEADING = 17, 12, 30  # heights: of an interval, between metrics, of the name of an experiment
STYLE = """\
:root { --ink: #1b1f24; --soft-ink: #57606a; --paper: #ffffff; --line: #d5dae0;
  --cb_s: #00568a; --tap: #00664a; --adl: #a33f00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft-ink: #a3abb3; --paper: #14171a; --line: #3a4149;
  --cb_s: #7cc4f0; --tap: #5fd0a8; --adl: #f0a070; } }
text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.title { font-size: 16px; font-weight: 600; } .heading { font-weight: 600; } .soft { fill: var(--soft-ink); }
.number { font-size: 12px; font-variant-numeric: tabular-nums; fill: var(--soft-ink); }
.paper { fill: var(--paper); } .grid { stroke: var(--line); } .zero { stroke: var(--soft-ink); stroke-width: 1.5; }
.bar { stroke-width: 2; } .mark { stroke: none; }
.cb_s { fill: var(--cb_s); stroke: var(--cb_s); } .tap { fill: var(--tap); stroke: var(--tap); }
.adl { fill: var(--adl); stroke: var(--adl); }"""
TITLES = {CIFAR: "CIFAR-100, DeiT-Ti", CAMVID: "CamVid, UperNet with DeiT-Ti"}


def drawn(runs: Runs) -> list[Metric]:
    """Returns the metrics of the plot: those of the first table in per cent, and the groups of Cityscapes-C."""
    groups = [
        Metric(each.experiment, f"Cityscapes-C: {each.title}", each.value)
        for each in conditions(runs, CAMVID, "cityscapes_c", "group", "group_miou")
    ]
    shown = (Metric(each.experiment, each.title.removesuffix(", %"), each.value) for each in HEADLINES)
    return [each for each, given in zip(shown, HEADLINES, strict=True) if given.title.endswith("%")] + groups


def draw(runs: Runs) -> str:
    """Returns the plot as the text of an SVG file."""
    metrics = drawn(runs)
    found = compare(runs, metrics)
    scale = Scale.over([each.difference for each in found], LEFT, RIGHT)
    rows, bottom = _rows(found, metrics, scale)
    title = "Difference to the plain model after fine-tuning, in points"
    described = "; ".join(f"{each.metric.title}, {ARMS[each.arm]} {each.difference[0]:+.2f}" for each in found)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 60}" role="img">',
        f"<title>{title}</title>",
        f"<desc>{escape(described)}</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{bottom + 60}"/>',
        f'<text class="title" x="20" y="28">{title}</text>',
        '<text class="soft" x="20" y="48">part added at fine-tuning; 3 pairs of runs with the same seed, '
        "95 % intervals (Student); positive: better than plain</text>",
        *_legend(),
        *_grid(scale, bottom),
        *rows,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _rows(found: Sequence[Comparison], metrics: Sequence[Metric], scale: Scale) -> tuple[list[str], int]:
    """Returns the intervals by experiment and metric, and the lower end of the plot."""
    lines, y, experiment = [], TOP, ""
    for metric in metrics:
        if metric.experiment != experiment:
            experiment = metric.experiment
            lines.append(f'<text class="heading" x="20" y="{y + 10}">{escape(TITLES[experiment])}</text>')
            y += HEADING
        lines.append(f'<text x="20" y="{y + LINE + 4}">{escape(_label(metric))}</text>')
        for each in (one for one in found if one.metric == metric):
            lines += _interval(each, scale, y)
            y += LINE
        y += GAP
    return lines, y


def _label(metric: Metric) -> str:
    return metric.title.replace("perturbations of CB Table 9", "CB Table 9")


def _interval(each: Comparison, scale: Scale, y: float) -> list[str]:
    mean, low, high = each.difference
    numbers = "{} ({} to {})".format(*(signed(value, 2) for value in each.difference))
    return [
        f'<line class="bar {each.arm}" x1="{scale(low):.1f}" x2="{scale(high):.1f}" y1="{y}" y2="{y}"/>',
        _mark(each.arm, scale(mean), y),
        f'<text class="number" x="{RIGHT + 20}" y="{y + 4}">{ARMS[each.arm]} {numbers}</text>',
    ]


def _mark(arm: str, x: float, y: float) -> str:
    """A circle, square or diamond."""
    if arm == "cb_s":
        return f'<circle class="{arm} mark" cx="{x:.1f}" cy="{y}" r="5"/>'
    turn = "" if arm == "tap" else f' transform="rotate(45 {x:.1f} {y})"'
    return f'<rect class="{arm} mark" x="{x - 4.5:.1f}" y="{y - 4.5}" width="9" height="9"{turn}/>'


def _legend() -> list[str]:
    lines, x = [], LEFT
    for arm, name in list(ARMS.items())[1:]:
        lines += [_mark(arm, x, 76), f'<text x="{x + 14}" y="80">{escape(name)}</text>']
        x += 90
    return lines


def _grid(scale: Scale, bottom: int) -> list[str]:
    lines = []
    for value, label in scale.ticks():
        kind, x = "zero" if abs(value) < scale.step / 1000 else "grid", scale(value)
        lines.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 20}" y2="{bottom}"/>')
        text = label.replace("-", "−")
        lines.append(f'<text class="soft" x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{text}</text>')
    middle = (LEFT + RIGHT) / 2
    lines.append(f'<text x="{middle}" y="{bottom + 46}" text-anchor="middle">difference to plain (points)</text>')
    return lines
