"""A picture as a list of SVG elements, with one style for light and dark."""

from __future__ import annotations

from html import escape

__all__ = ["Canvas", "text_width"]

#: Okabe and Ito's colours: ours is blue, the paper's numbers are vermilion, bounds are a darker red.
_STYLE = """\
:root { --ink: #1b1f24; --soft: #57606a; --page: #ffffff; --line: #d5dae0; --shade: #e3e6ea; --block: #c9ced4;
  --ours: #0072b2; --paper: #b34700; --bound: #c00000; --blue: #bcd9ee; --good: #00664a; --bad: #a33f00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #a3abb3; --page: #14171a; --line: #3a4149;
  --shade: #2a2f35; --block: #565e67; --ours: #7cc4f0; --paper: #f0a070; --bound: #ff8080; --blue: #27506f;
  --good: #5fd0a8; --bad: #f0a070; } }
text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.title { font-size: 16px; font-weight: 600; } .head { font-weight: 600; } .small { font-size: 11px; }
.soft { fill: var(--soft); } .end { text-anchor: end; } .middle { text-anchor: middle; }
text.ours { fill: var(--ours); } text.paper { fill: var(--paper); } text.bound { fill: var(--bound); }
.page { fill: var(--page); } .shade { fill: var(--shade); } .box { stroke: var(--soft); }
.conv { fill: var(--page); } .msa { fill: var(--block); } .sub { fill: var(--blue); }
.grid { stroke: var(--line); } .frame { stroke: var(--soft); fill: none; } .zero { stroke: var(--soft); }
.curve { fill: none; stroke-width: 2; } .curve.ours, .bar.ours { stroke: var(--ours); }
.curve.paper, .bar.paper { stroke: var(--paper); } .curve.bound { stroke: var(--bound); }
.curve.ink { stroke: var(--ink); } .bar { stroke-width: 2; }
.dash { stroke-dasharray: 7 4; } .dot { stroke-dasharray: 2 4; }
.mark.ink { fill: var(--ink); } .mark.ours { fill: var(--ours); } .mark.paper { fill: var(--paper); }
.good { fill: var(--good); } .bad { fill: var(--bad); }"""


class Canvas:
    """Collects the elements of a picture.

    Args:
        width, height: in pixels.
        title: the heading of the picture.
        about: a line below the heading.
        style: more CSS.
    """

    def __init__(self, width: float, height: float, title: str, about: str = "", style: str = "") -> None:
        self.width, self.height = width, height
        self._lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}{style}</style>",
        ]
        self.add("rect", "page", x=0, y=0, width=width, height=height)
        self.text(20, 28, title, "title")
        self.text(20, 48, about, "soft")

    def add(self, tag: str, class_: str, **attributes: float | str) -> None:
        """Add an element; numbers are rounded to a tenth of a pixel."""
        written = "".join(f' {name}="{_attribute(value)}"' for name, value in attributes.items())
        self._lines.append(f'<{tag} class="{class_}"{written}/>')

    def text(self, x: float, y: float, content: str, class_: str = "", turn: int = 0) -> None:
        """Add a text with its baseline at a point; `turn` rotates it by that number of degrees."""
        if content:
            place = f'transform="translate({x:.1f} {y:.1f}) rotate({turn})"' if turn else f'x="{x:.1f}" y="{y:.1f}"'
            kind = f' class="{class_}"' if class_ else ""
            self._lines.append(f"<text{kind} {place}>{escape(content)}</text>")

    def line(self, x1: float, y1: float, x2: float, y2: float, class_: str) -> None:
        """Add a straight line."""
        self.add("line", class_, x1=x1, y1=y1, x2=x2, y2=y2)

    def curve(self, points: list[tuple[float, float]], class_: str) -> None:
        """Add straight lines through points."""
        self.add("polyline", f"curve {class_}", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points))

    def __str__(self) -> str:
        return "\n".join([*self._lines, "</svg>"]) + "\n"


def _attribute(value: float | str) -> str:
    return escape(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def text_width(text: str) -> float:
    """The width of a text of 13 pixels, roughly.

    >>> text_width("ViT-S") > text_width("ViT")
    True
    """
    return 7.2 * len(text)
