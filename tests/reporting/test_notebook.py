"""A measurement in a notebook: a small drawing with the numbers, escaped, and nothing that runs."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from cases.looks import LOOKS
from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import bars, empty_plot, heat_map, line
from vitlab.reporting.static_axes import Extent, round_steps
from vitlab.reporting.static_figure import svg

EVIL = "</svg><script>alert('x')</script><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, attrs))


@pytest.mark.parametrize("kind", sorted(LOOKS))
def test_every_kind_is_small_and_has_no_script(kind: str) -> None:
    cell = LOOKS[kind]("a model")._repr_html_()
    assert len(cell.encode()) < 100_000 and "<svg" in cell
    assert not {"script", "iframe", "object", "link"} & {tag for tag, _ in Tags(cell).found}
    ElementTree.fromstring(re.search(r"<svg.*</svg>", cell, re.S)[0])  # well-formed
    assert "nan" not in re.sub(r'"data:[^"]*"', "", cell).lower().split()


def test_hostile_strings_are_text() -> None:
    odd = Measurement(EVIL, EVIL, {EVIL: np.ones(2)}, {EVIL: (EVIL,)}, {EVIL: (EVIL, "b")}, {EVIL: EVIL}, {EVIL: EVIL})
    tags = Tags(odd._repr_html_()).found
    assert not {"script", "img"} & {tag for tag, _ in tags}
    assert not [name for _, attributes in tags for name, _ in attributes if name.startswith("on")]


def test_points_are_at_their_coordinates() -> None:
    plot = empty_plot("x", "y")
    line(plot, [0, 10], [0.0, 5.0], "a", 0)
    plot.update_layout(xaxis_range=[0, 10], yaxis_range=[0, 5])
    drawing = ElementTree.fromstring(svg(plot))
    (path,) = (each.get("d") for each in drawing.iter() if each.tag.endswith("path"))
    (x0, y0), (x1, y1) = ([float(n) for n in pair] for pair in re.findall(r"[ML]([\d.]+) ([\d.]+)", path))
    height = float(drawing.get("height"))
    assert (x0, x1) == (56.0, 640 - 14.0) and (y0, y1) == (height - 44, 34.0)


def test_bars_start_at_zero_and_their_heights_are_proportional() -> None:
    plot = empty_plot("", "y")
    bars(plot, ["a", "b"], [2.0, -1.0], "m", 0)
    found = [float(each) for each in re.findall(r'width="[\d.]+" height="([\d.]+)"/>', svg(plot))]
    assert found[0] == pytest.approx(2 * found[1], abs=0.2)


def test_a_matrix_is_a_picture_with_its_first_row_at_the_bottom() -> None:
    import base64
    import io

    from PIL import Image

    plot = empty_plot("x", "y")
    heat_map(plot, [[0.0, 0.0], [1.0, 1.0]], [1, 2], [1, 2])
    data = re.search(r"data:image/png;base64,([^\"]+)", svg(plot))[1]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
    assert pixels[0].sum() > pixels[-1].sum()  # the row of ones, bright in Viridis, is on top
    assert pixels.shape == (2, 2, 3)


def test_a_measurement_of_pictures_shows_them() -> None:
    pictures = np.random.default_rng(0).integers(0, 255, (6, 300, 200, 3), dtype=np.uint8)
    view = Measurement("attention_view", "a", {"pictures": pictures}, {"pictures": ("image", "r", "c", "k")})
    cell = view._repr_html_()
    assert cell.count("<img") == 4 and len(cell) < 100_000


def test_ticks_are_round_numbers_inside_the_range() -> None:
    for low, high in ((0.0, 1.0), (-3.2, 7.9), (0.0011, 0.0019), (950.0, 2040.0)):
        steps = list(round_steps(low, high))
        assert 2 <= len(steps) <= 6 and low <= steps[0] and steps[-1] <= high
        np.testing.assert_allclose(np.diff(steps), steps[1] - steps[0])


def test_categories_and_logarithms() -> None:
    names = Extent(["a", "b", "a"]).axis({}, 0.0, 100.0)
    assert names.categories == ("a", "b") and names.pixel("a") < names.pixel("b")
    log = Extent([1.0, 100.0]).axis({"type": "log", "range": [0, 2]}, 0.0, 100.0)
    assert log.pixel(10.0) == pytest.approx(50.0) and np.isnan(log.pixel(0.0))


def test_error_bars_end_inside_the_plot() -> None:
    plot = empty_plot("x", "y", height=300)
    line(plot, [1, 2], [10.0, 20.0], "a", 0, error=[5.0, 8.0])
    text = svg(plot)
    ends = [tuple(map(float, each)) for each in re.findall(r"M[\d.]+ ([\d.-]+)V([\d.-]+)", text)]
    assert len(ends) == 2 and all(34 <= top < bottom <= 300 - 44 for top, bottom in ends)
    ticks = sorted(int(t.replace("−", "-")) for t in re.findall(r">(−?\d+)</text>", text))
    assert ticks[0] <= 4 and ticks[-1] >= 30, "10 − 1.96 · 5 to 20 + 1.96 · 8"


def test_a_curve_is_cut_at_the_ends_of_a_given_range() -> None:
    plot = empty_plot("x", "y")
    line(plot, [0.0, 1.0, 2.0], [0.0, 1.0, 0.0], "a", 0)
    plot.update_xaxes(range=[1.0, 2.0])
    root = ElementTree.fromstring(svg(plot))
    (inner,) = root.findall("{http://www.w3.org/2000/svg}svg")
    assert float(inner.get("x")) >= 50 and float(inner.get("x")) + float(inner.get("width")) <= 640
    assert inner.get("viewBox").split() == [inner.get(name) for name in ("x", "y", "width", "height")]
    assert inner.findall(".//{http://www.w3.org/2000/svg}path"), "the curve is inside the element that cuts it"


def test_the_title_is_left_of_the_labels_of_ticks() -> None:
    plot = empty_plot("x", "the title", height=300)
    heat_map(plot, [[1.0], [2.0]], x=[1], y=["impulse noise", "jpeg compression"])
    root = ElementTree.fromstring(svg(plot))
    texts = {each.text: each for each in root.iter("{http://www.w3.org/2000/svg}text")}
    label = texts["jpeg compression"]
    left_of_label = float(label.get("x")) - 5.5 * len("jpeg compression")
    assert left_of_label >= 0 and float(texts["the title"].get("x")) <= left_of_label


def test_attention_is_shown_beside_the_pictures() -> None:
    """The class token attends to one patch only, in both heads: one yellow pixel, the others dark."""
    maps = np.zeros((1, 2, 5, 4), np.uint8)
    maps[:, :, 0, 2] = 255
    values = {
        "pictures": np.zeros((1, 8, 8, 3), np.uint8),
        "grid": np.array([[2, 2]]),
        "maps of blocks.0": maps,
        "peak of blocks.0": np.full((1, 2, 5), 0.5, np.float32),
        "prefix of blocks.0": np.zeros((1, 2, 5, 1), np.float32),
    }
    dims = {name: tuple(f"{name} {i}" for i in range(np.ndim(value))) for name, value in values.items()}
    cell = Measurement("attention_view", "a", values, dims, {"layer": ("blocks.0",)})._repr_html_()
    (source,) = re.findall(r'src="data:image/png;base64,([^"]*)" alt="attention map of blocks.0, picture 1"', cell)
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(source))).convert("RGB")).astype(int)
    assert pixels.shape == (2, 2, 3) and pixels.sum(-1).argmax() == 2 and (pixels.sum(-1) < 200).sum() == 3
    assert "Attention of the class token in blocks.0" in cell
