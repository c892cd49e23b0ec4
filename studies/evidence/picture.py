"""Plot of the gain in top-1 against the drop of deep entropy, one point per arm, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from evidence.claims import with_part
from evidence.comparing import Runs, effects
from evidence.conditions import CONDITIONS
from vitlab.core.statistics import mean_interval

__all__ = ["Point", "Scale", "draw", "points"]

WIDTH, HEIGHT = 900, 560
LEFT, RIGHT, TOP, BOTTOM = 80, 590, 64, 480  # of the plot
STYLE = """\
:root { --ink: #1b1f24; --soft-ink: #57606a; --paper: #ffffff; --line: #d5dae0; --mark-ink: #ffffff;
  --schedule: #00568a; --form: #a33f00; --tapadl: #00664a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft-ink: #a3abb3; --paper: #14171a; --line: #3a4149;
  --mark-ink: #14171a; --schedule: #7cc4f0; --form: #f0a070; --tapadl: #5fd0a8; } }
text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.title { font-size: 16px; font-weight: 600; } .soft { fill: var(--soft-ink); }
.number { font-size: 11px; font-weight: 700; fill: var(--mark-ink); text-anchor: middle; }
.paper { fill: var(--paper); } .grid { stroke: var(--line); } .zero { stroke: var(--soft-ink); stroke-width: 1.5; }
.bar { stroke-width: 1.75; } .schedule { fill: var(--schedule); stroke: var(--schedule); }
.form { fill: var(--form); stroke: var(--form); } .tapadl { fill: var(--tapadl); stroke: var(--tapadl); }
.mark { stroke: var(--paper); stroke-width: 1.5; }"""

#: Kinds of points and their legends.
KINDS = {"schedule": "CB, upper half of the blocks", "form": "other forms and places of CB", "tapadl": "TAP and ADL"}
Interval = tuple[float, float, float]


@dataclass(frozen=True)
class Point:
    """An arm: drop of deep entropy and gain in top-1, each with its interval."""

    label: str
    kind: str
    pairs: int
    drop: Interval
    gain: Interval


def points(runs: Runs) -> list[Point]:
    """Returns all arms of conditions that are not exploratory and have both numbers, by kind."""
    found = []
    for condition in CONDITIONS:
        for arm in condition.arms:
            terms = with_part(condition.name, arm.name)
            gains, falls = effects(runs, "top1", terms), effects(runs, "entropy_deep", terms)
            if arm.name == "plain" or condition.exploratory or not gains or not falls:
                continue
            kind = "form" if condition.name == "places" else "schedule" if arm.name == "cb" else "tapadl"
            drop = mean_interval([-fall for fall in falls.values()])
            label = f"{condition.name}: {arm.name}"
            found.append(Point(label, kind, len(gains), drop, mean_interval(list(gains.values()))))
    return sorted(found, key=lambda point: list(KINDS).index(point.kind))


def draw(runs: Runs) -> str:
    """Returns the plot as the text of an SVG file."""
    found = points(runs)
    across, up = Scale.over([p.drop for p in found], LEFT, RIGHT), Scale.over([p.gain for p in found], BOTTOM, TOP)
    title = "Gain in top-1 against drop of deep attention entropy"
    described = "; ".join(f"{p.label} {p.gain[0]:+.2f} points, {p.drop[0]:+.3f} nats" for p in found)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{title}</title>",
        f"<desc>{escape(described)}</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="{LEFT}" y="28">{title}</text>',
        f'<text class="soft" x="{LEFT}" y="48">ViT-Ti, CIFAR-100; paired by seed, bars are 95 % intervals</text>',
        *_axes(across, up),
        *(line for point in found for line in _bars(point, across, up)),
        *(_mark(p.kind, str(n), across(p.drop[0]), up(p.gain[0])) for n, p in reversed(list(enumerate(found, 1)))),
        *_legend(found),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Scale:
    """Maps values to pixels, with ticks at round values."""

    low: float
    high: float
    step: float
    start: int
    end: int

    @classmethod
    def over(cls, intervals: Sequence[Interval], start: int, end: int) -> Scale:
        """Covers 0 and all intervals that are finite."""
        values = [0.0, *(value for interval in intervals for value in interval if math.isfinite(value))]
        span = max(values) - min(values) or 1.0
        magnitude = 10 ** math.floor(math.log10(span / 5))
        step = next(factor * magnitude for factor in (1, 2, 5, 10) if span / (factor * magnitude) <= 6)
        low, high = math.floor(min(values) / step - 0.2), math.ceil(max(values) / step + 0.2)
        return cls(low * step, high * step, step, start, end)

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Round values with their labels."""
        digits = max(0, -math.floor(math.log10(self.step)))
        count = round((self.high - self.low) / self.step)
        values = [self.low + index * self.step for index in range(count + 1)]
        return [
            (value, f"{value + 0.0:.{digits}f}".replace("-0." + "0" * digits, "0." + "0" * digits)) for value in values
        ]


def _axes(across: Scale, up: Scale) -> list[str]:
    lines = []
    for value, label in across.ticks():
        kind, x = _line(value, across), across(value)
        lines.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{BOTTOM}"/>')
        lines.append(f'<text class="soft" x="{x:.1f}" y="{BOTTOM + 20}" text-anchor="middle">{label}</text>')
    for value, label in up.ticks():
        kind, y = _line(value, up), up(value)
        lines.append(f'<line class="{kind}" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text class="soft" x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    middle, height = (LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2
    lines.append(
        f'<text x="{middle}" y="{BOTTOM + 46}" text-anchor="middle">drop of entropy, layers 7 to 12 (nats)</text>'
    )
    lines.append(
        f'<text transform="translate(26 {height}) rotate(-90)" text-anchor="middle">gain in top-1 (points)</text>'
    )
    return lines


def _line(value: float, scale: Scale) -> str:
    return "zero" if abs(value) < scale.step / 1000 else "grid"


def _bars(point: Point, across: Scale, up: Scale) -> list[str]:
    """Error bars; a single pair has none."""
    if point.pairs < 2:
        return []
    x, y = across(point.drop[0]), up(point.gain[0])
    (left, right), (low, high) = map(across, point.drop[1:]), map(up, point.gain[1:])
    kind = f"bar {point.kind}"
    return [
        f'<line class="{kind}" x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>',
        f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>',
    ]


def _mark(kind: str, number: str, x: float, y: float) -> str:
    """A circle, square or diamond with a number in it."""
    shape = f'<circle class="{kind} mark" cx="{x:.1f}" cy="{y:.1f}" r="10"/>'
    if kind != "schedule":
        turn = "" if kind == "form" else f' transform="rotate(45 {x:.1f} {y:.1f})"'
        box = f'x="{x - 9:.1f}" y="{y - 9:.1f}" width="18" height="18" rx="2"'
        shape = f'<rect class="{kind} mark" {box}{turn}/>'
    return f'{shape}<text class="number" x="{x:.1f}" y="{y + 4:.1f}">{number}</text>'


def _legend(found: Sequence[Point]) -> list[str]:
    lines, y = [], TOP + 10
    for kind, title in KINDS.items():
        members = [(number, point) for number, point in enumerate(found, 1) if point.kind == kind]
        if not members:
            continue
        lines.append(f'<text class="soft" x="{RIGHT + 30}" y="{y}">{title}</text>')
        for number, point in members:
            y += 26
            lines.append(_mark(kind, str(number), RIGHT + 42, y - 4))
            pairs = f"{point.pairs} pair{'s' if point.pairs > 1 else ''}"
            lines.append(f'<text x="{RIGHT + 62}" y="{y}">{escape(point.label)}, {pairs}</text>')
        y += 34
    return lines
