"""The report in real Chromium: it draws, hovers, saves, prints, and neither complains nor calls out."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from browser import browser_page, chromium, until  # noqa: F401 (fixtures)
from cases.looks import LOOKS
from vitlab.core.measurement import Measurement
from vitlab.reporting import report

EVIL = "=HYPERLINK(1)</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
LAYERS = np.array([1.0, 2.0, 4.0, 8.0])
ERRORS = {"size": "size_error"}


def lines(subject: str, kind: str = "something_new", scale: float = 1.0) -> Measurement:
    values = {"size": scale * LAYERS, "size_error": 0.1 * LAYERS}
    return Measurement(kind, subject, values, dict.fromkeys(values, ("layer",)), {}, {}, {"note": subject}, ERRORS)


def matrix(subject: str) -> Measurement:
    return Measurement("pairs", subject, {"likeness": np.eye(3)}, {"likeness": ("here", "there")})


def training(subject: str) -> Measurement:
    values = {"train_loss": np.array([3.0, 2.0]), "loss": np.array([2.5, 1.5]), "top1": np.array([10.0, 60.0])}
    return Measurement("training", subject, values, dict.fromkeys(values, ("epoch",)), {"epoch": (1, 2)})


def calibration(subject: str) -> Measurement:
    values = {"bin_confidence": np.array([0.4, 0.9]), "bin_accuracy": np.array([0.3, 0.8]), "edges": LAYERS[:3] / 4}
    values |= {"bin_count": np.array([10, 60]), "ece": np.array(0.1), "signed_ece": np.array(0.1)}
    dims = {name: ("bin",)[: value.ndim] for name, value in values.items()} | {"edges": ("edge",)}
    return Measurement("calibration", subject, values, dims)


def hessian_spectrum(subject: str) -> Measurement:
    values = {"eigenvalues": np.array([[-4.0, -1.0, 2.0, 30.0]]), "negative_proportion": np.array(0.5)}
    values |= {"positive_average": np.array(16.0)}
    dims = {name: ("mini_batch", "rank")[: value.ndim] for name, value in values.items()}
    return Measurement("hessian_spectrum", subject, values, dims)


def loss_landscape(subject: str) -> Measurement:
    values = {name: np.add.outer(LAYERS[:3], LAYERS[:3]) for name in ("nll", "l2", "total")}
    axes = dict.fromkeys(("first", "second"), (-1.0, 0.0, 1.0))
    return Measurement("loss_landscape", subject, values, dict.fromkeys(values, ("first", "second")), axes)


def train_fit(subject: str) -> Measurement:
    values = {"train_nll": np.array(2.0), "train_nll_interval": np.array([1.9, 2.2])}
    values |= {"test_error": np.array(0.3), "test_error_interval": np.array([0.29, 0.33])}
    dims = {name: ("bound",)[: value.ndim] for name, value in values.items()}
    return Measurement("train_fit", subject, values, dims, {"bound": ("low", "high")})


def trajectory(subject: str) -> Measurement:
    values = {"radius": np.array([1.0, 0.5]), "angle": np.radians([0.0, 30.0])}
    return Measurement("trajectory", subject, values, dict.fromkeys(values, ("snapshot",)), {"snapshot": ("s", "t")})


MADE = (training, calibration, hessian_spectrum, loss_landscape, train_fit, trajectory)
SEEN = ("attention_entropy", "attention_distance", "attention_diversity", "lesion", "representation_cka")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of two models with real drawings: panels, bands, heads, mosaics, intervals, space, angles."""
    found = [make(who) for make in MADE for who in ("plain", "CB")]
    found += [LOOKS[kind](who) for kind in SEEN for who in ("plain", "CB")]
    return report(found, tmp_path_factory.mktemp("kinds") / "report.html").as_uri()


@pytest.fixture
def drawn(browser_page: Any, kinds: str) -> Any:  # noqa: F811
    browser_page.goto(kinds)
    unfold(browser_page)
    browser_page.wait_for_selector(".main-svg")
    return browser_page


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of two models and many kinds, so that its end is far below the window."""
    found = [lines(who, f"kind_{i}", s) for i in range(8) for who, s in (("plain", 1.0), ("CB", 2.0))]
    path = report([*found, matrix("plain"), matrix("CB")], tmp_path_factory.mktemp("page") / "report.html")
    return path.as_uri()


def unfold(page: Any) -> None:
    page.evaluate("document.querySelectorAll('main details').forEach(fold => { fold.open = true; })")


@pytest.fixture
def opened(browser_page: Any, address: str) -> Any:  # noqa: F811
    browser_page.goto(address)
    unfold(browser_page)
    browser_page.wait_for_selector(".main-svg")
    return browser_page


def saved(page: Any, press: Callable[[], None]) -> tuple[str, str]:
    with page.expect_download() as download:
        press()
    return download.value.suggested_filename, Path(download.value.path()).read_text(encoding="utf-8")


def table(page: Any, file: str) -> list[dict[str, str]]:
    """The rows of the CSV of one figure, each by its columns."""
    figure = page.locator(f"figure:has([data-file='{file}'])")
    name, text = saved(page, figure.locator("button[data-save=csv]").click)
    assert name == f"{file}.csv"
    return list(csv.DictReader(io.StringIO(text)))


def plot_of(page: Any, file: str) -> str:
    """The id of a figure, drawn."""
    place = page.locator(f"[data-file='{file}']")
    place.scroll_into_view_if_needed()
    place.locator(".main-svg").first.wait_for()
    return str(place.get_attribute("id"))


def hovered(page: Any, identity: str) -> str:
    until(page, f"document.querySelector('#{identity} .hoverlayer').textContent")
    page.wait_for_timeout(150)
    return str(page.locator(f"#{identity} .hoverlayer").text_content())


def test_figures_are_drawn_when_scrolled_into_view(opened: Any) -> None:
    drawn = "document.querySelectorAll('.plot .main-svg').length > 0 && [...document.querySelectorAll('.plot')]"
    assert 1 <= opened.evaluate(f"({drawn}).filter(p => p.data).length") < 9
    opened.locator(".plot").last.scroll_into_view_if_needed()
    until(opened, "[...document.querySelectorAll('.plot')].at(-1).data?.length === 2")
    assert opened.evaluate("document.getElementById('figure-1-1').data.map(t => t.y)") == [
        LAYERS.tolist(),
        (2 * LAYERS).tolist(),
    ]


def test_hover_shows_the_value(opened: Any) -> None:
    opened.locator("#figure-1-1").scroll_into_view_if_needed()
    box = opened.locator("#figure-1-1 .scatterlayer .point").nth(2).bounding_box()
    opened.mouse.move(box["x"] + 3, box["y"] + 30)
    opened.mouse.move(box["x"] + 3, box["y"] + 3)
    until(opened, "document.querySelector('#figure-1-1 .hoverlayer').textContent.includes('plain')")
    words = opened.locator("#figure-1-1 .hoverlayer").text_content()
    assert "plain : 4" in words and "CB : 8" in words


def test_the_data_button_saves_every_point(opened: Any) -> None:
    name, text = saved(opened, opened.locator("button[data-save=csv]").first.click)
    head, *rows = csv.reader(io.StringIO(text))
    assert name == "kind_0-1.csv" and head == ["series", "x axis", "x", "y axis", "y", "error -", "error +"]
    assert [(*row[:2], float(row[2]), row[3], float(row[4])) for row in rows] == [
        *(("plain", "layer", i + 1.0, "size", y) for i, y in enumerate(LAYERS)),
        *(("CB", "layer", i + 1.0, "size", 2 * y) for i, y in enumerate(LAYERS)),
    ]
    np.testing.assert_allclose([float(row[5]) for row in rows[:4]], 1.96 * 0.1 * LAYERS, rtol=1e-4)


def test_the_data_of_a_matrix_has_a_row_for_each_cell(opened: Any) -> None:
    _, text = saved(opened, opened.locator("button[data-save=csv]").last.click)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 18 and [float(row["z"]) for row in rows[:9]] == np.eye(3).ravel().tolist()
    assert {row["panel"] for row in rows} == {row["series"] for row in rows} == {"plain", "CB"}


def test_the_data_of_panels_name_the_panel_and_the_axes(drawn: Any) -> None:
    rows = table(drawn, "training-1")
    accuracy = [(row["y axis"], float(row["y"])) for row in rows if row["panel"] == "top-1 accuracy"]
    assert accuracy == [("top-1 accuracy, %", y) for y in (10.0, 60.0)] * 2
    assert {row["y axis"] for row in rows if row["panel"] == "loss"} == {"loss, nats"}
    pairs = {(row["panel"], row["x axis"], row["y axis"]) for row in table(drawn, "representation_cka-1")}
    assert pairs == {("plain", "layer", "layer"), ("CB", "layer", "layer")}  # the title of y stands at the first only
    surface = {(row["panel"], row["x axis"], row["z axis"]) for row in table(drawn, "loss_landscape-2")}
    assert surface == {("plain", "β", "loss, nats"), ("CB", "β", "loss, nats")}


def test_the_data_of_negative_eigenvalues_are_negative(drawn: Any) -> None:
    found = [(row["panel"], float(row["x"])) for row in table(drawn, "hessian_spectrum-1")]
    assert {panel for panel, x in found if x < 0} == {"negative"} and {panel for panel, x in found if x > 0} == {
        "positive"
    }


def test_the_data_of_intervals_have_both_ends(drawn: Any) -> None:
    (row,) = (row for row in table(drawn, "train_fit-1") if row["series"] == "plain")
    ends = [float(row[end]) for end in ("x error -", "x error +", "error -", "error +")]
    np.testing.assert_allclose(ends, [0.1, 0.2, 1.0, 3.0])
    low, high = (
        [float(row[end]) for row in table(drawn, "calibration-1") if row[end]] for end in ("error -", "error +")
    )
    assert len(low) == 4 and all(above != below for above, below in zip(high, low, strict=True))  # Wilson's


def test_the_data_of_heads_and_bands_and_units(drawn: Any) -> None:
    entropy, lesion = LOOKS["attention_entropy"]("plain"), LOOKS["lesion"]("plain")
    dots = [row for row in table(drawn, "attention_entropy-2") if row["series"] == "plain, heads"]
    expected = [(i + 1, j + 1, 100 * v) for (i, j), v in np.ndenumerate(entropy.values["normalised"])]  # in per cent
    np.testing.assert_allclose([[float(row[name]) for name in ("x", "head", "y")] for row in dots], expected, rtol=1e-6)
    band = [row for row in table(drawn, "attention_entropy-1") if row["series"] == "plain, 15th to 85th percentile"]
    edges = [[float(row["low"]), float(row["high"])] for row in band]
    np.testing.assert_allclose(edges, np.stack([entropy.values[e].mean(1) for e in ("p15", "p85")], 1), rtol=1e-6)
    units = {row["without"] for row in table(drawn, "lesion-1")}
    assert units == {str(unit) for unit in lesion.axes["unit"]}


def test_the_data_of_tiles_angles_and_formulas(drawn: Any) -> None:
    tiles = {row["point"]: (row["y"], row["x"]) for row in table(drawn, "attention_diversity-2")}
    assert tiles["heads 1 and 3"] == ("1", "3") and len(tiles) == 9
    path = [(row["snapshot"], float(row["x"]), float(row["y"])) for row in table(drawn, "trajectory-1")]
    assert path[:2] == [("s", 0.0, 1.0), ("t", pytest.approx(30), 0.5)]
    assert "a_ij" in table(drawn, "attention_distance-2")[0]["y axis"]


def test_arrow_keys_step_through_the_points(drawn: Any) -> None:
    identity = plot_of(drawn, "attention_entropy-2")
    drawn.locator(f"#{identity}").focus()
    drawn.keyboard.press("ArrowRight")
    assert "layer 1, head 1" in hovered(drawn, identity)
    drawn.keyboard.press("ArrowRight")
    until(drawn, f"document.querySelector('#{identity} .hoverlayer').textContent.includes('layer 1, head 2')")
    until(drawn, "document.querySelector('[aria-live]').textContent.includes('layer 1, head 2')")
    drawn.keyboard.press("Escape")
    until(drawn, f"!document.querySelector('#{identity} .hoverlayer').textContent")
    drawn.keyboard.press("ArrowLeft")
    assert "CB" in hovered(drawn, identity)  # the last


@pytest.mark.parametrize("file, words", [("attention_diversity-2", "heads 1 and 2"), ("trajectory-1", "snapshot t")])
def test_arrow_keys_in_matrices_and_angles(drawn: Any, file: str, words: str) -> None:
    identity = plot_of(drawn, file)
    drawn.locator(f"#{identity}").focus()
    drawn.keyboard.press("ArrowRight")
    drawn.wait_for_timeout(200)
    drawn.keyboard.press("ArrowRight")
    until(drawn, f"document.querySelector('#{identity} .hoverlayer').textContent.includes('{words}')")


def test_a_figure_has_a_label_and_shows_its_button_on_focus(drawn: Any) -> None:
    identity = plot_of(drawn, "training-1")
    place = drawn.locator(f"#{identity}")
    seen = f"getComputedStyle(document.querySelector('#{identity} .modebar-group')).opacity"
    assert drawn.evaluate(seen) == "0" and "arrow keys" in place.get_attribute("aria-label")
    place.focus()
    until(drawn, f"{seen} === '1'")
    drawn.evaluate(f"Plotly.relayout('{identity}', {{'xaxis.range': [5, 6]}})")
    drawn.keyboard.press("Tab")
    drawn.keyboard.press("Enter")
    until(drawn, f"document.getElementById('{identity}').layout.xaxis.range[1] < 5")


def test_a_surface_rotates_by_keys_and_is_saved_as_shown(drawn: Any) -> None:
    identity = plot_of(drawn, "loss_landscape-2")
    camera = f"document.getElementById('{identity}').layout.scene.camera.eye"
    first = drawn.evaluate(camera)
    drawn.locator(f"#{identity}").focus()
    drawn.keyboard.press("ArrowRight")
    until(drawn, f"{camera}.x !== {first['x']}")
    turned = drawn.evaluate(camera)
    angles = [np.arctan2(eye["y"], eye["x"]) for eye in (first, turned)]
    assert np.degrees(angles[1] - angles[0]) == pytest.approx(15) and turned["z"] == first["z"]
    kept = "async ({ layout }) => `data:,${JSON.stringify(layout.scene.camera.eye)}`"
    drawn.evaluate(f"() => {{ Plotly.toImage = {kept}; }}")
    _, text = saved(drawn, drawn.locator(f"[data-save=svg][data-of={identity}]").click)
    assert json.loads(text) == turned


def test_an_unknown_error_is_not_zero(browser_page: Any, tmp_path: Path) -> None:  # noqa: F811
    values = {"size": LAYERS, "size_error": np.array([0.5, np.nan, 0.5, np.nan])}
    half = Measurement("half_known", "a", values, dict.fromkeys(values, ("layer",)), errors=ERRORS)
    browser_page.goto(report([half], tmp_path / "page.html").as_uri())
    browser_page.wait_for_selector("#figure-1-1 .errorbar")
    assert browser_page.locator("#figure-1-1 .yerror").count() == 2
    assert [row["error +"] for row in table(browser_page, "half_known-1")] == ["0.98", "", "0.98", ""]


def test_the_image_button_saves_a_drawing_with_the_finding(opened: Any) -> None:
    name, text = saved(opened, opened.locator("button[data-save=svg]").first.click)
    drawing = ElementTree.fromstring(text)
    words = " ".join("".join(drawing.itertext()).split())
    assert name == "kind_0-1.svg" and drawing.tag.endswith("svg")
    assert "size by layer" in words


def test_the_navigation_marks_the_section_in_view_and_none_beside_the_overview(opened: Any) -> None:
    marked = "[...document.querySelectorAll('.side [aria-current=true]')].map(link => link.getAttribute('href')).join()"
    for width in (1100, 390):
        opened.set_viewport_size({"width": width, "height": 800})
        opened.evaluate("document.getElementById('section-5').scrollIntoView()")
        until(opened, f"{marked} === '#section-5'")
        opened.evaluate("scrollTo(0, 0)")
        until(opened, f"{marked} === ''")


def test_themes_by_keyboard(opened: Any) -> None:
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.textContent") == "Skip to the summary"
    opened.keyboard.press("Tab")
    colours = []
    for _ in range(2):
        opened.keyboard.press("Enter")
        colours.append(opened.evaluate("document.querySelector('.plot').layout.font.color"))
    assert opened.locator("#theme").text_content() == "Theme: dark"
    assert colours == ["#1b1f24", "#e6e9ec"]


def test_printing_uses_dark_colours_and_restores_the_page(opened: Any) -> None:
    opened.emulate_media(color_scheme="dark")
    opened.evaluate("dispatchEvent(new Event('beforeprint'))")
    seen = "[...document.querySelectorAll('.plot')].map(p => p.layout?.font.color + p.layout?.width)"
    assert set(opened.evaluate(seen)) == {"#1b1f24680"}
    opened.evaluate("dispatchEvent(new Event('afterprint'))")
    assert set(opened.evaluate("[...document.querySelectorAll('.plot')].map(p => p.layout.font.color)")) == {"#e6e9ec"}


def test_a_narrow_window_does_not_scroll_sideways(opened: Any) -> None:
    opened.set_viewport_size({"width": 480, "height": 800})
    opened.wait_for_timeout(300)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 480


def test_a_narrow_window_does_not_cut_words_or_panels(drawn: Any) -> None:
    drawn.set_viewport_size({"width": 400, "height": 800})
    drawn.wait_for_timeout(300)
    names = "[...document.querySelectorAll('tbody th[scope]')].map(th => th.offsetWidth)"
    assert min(drawn.evaluate(names)) >= 7 * 16
    for file, least in (("training-1", 30), ("attention_diversity-2", 44)):
        assert drawn.locator(f"[data-file='{file}']").bounding_box()["width"] >= least * 16
    assert drawn.evaluate("document.documentElement.scrollWidth") <= 400


def test_hostile_strings_are_neither_executed_nor_formulas(browser_page: Any, tmp_path: Path) -> None:  # noqa: F811
    odd = Measurement(EVIL, EVIL, {"size": LAYERS[:2]}, {"size": (EVIL,)}, {EVIL: ("<b>x</b>", EVIL)}, {EVIL: EVIL})
    browser_page.goto(report([odd, lines(EVIL)], tmp_path / "page.html", title="honest").as_uri())
    unfold(browser_page)
    browser_page.locator(".plot").last.scroll_into_view_if_needed()
    until(browser_page, "[...document.querySelectorAll('.plot')].every(p => p.querySelector('.main-svg'))")
    assert browser_page.title() == "honest" and not browser_page.locator("img[src=x]").count()
    _, text = saved(browser_page, browser_page.locator("button[data-save=csv]").first.click)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows[0]["series"].startswith("'=") and rows[0]["x"] == "<b>x</b>" and rows[1]["x"] == f"'{EVIL}"


def test_a_notebook_shows_the_figure_without_scripts(browser_page: Any, tmp_path: Path) -> None:  # noqa: F811
    cell = lines(EVIL)._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<!doctype html><title>book</title>{cell}", encoding="utf-8")
    browser_page.goto((tmp_path / "notebook.html").as_uri())
    browser_page.locator("svg path").first.wait_for()
    assert browser_page.title() == "book" and not browser_page.locator("script, iframe, img[src=x]").count()
