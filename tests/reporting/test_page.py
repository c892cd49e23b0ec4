"""The page: self-contained, escaped, and with the numbers that went in."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vitlab
from cases.looks import LOOKS
from vitlab.core.measurement import Measurement
from vitlab.reporting import read, report, section_view
from vitlab.reporting.drawing import Fragment, bars, empty_plot, line
from vitlab.reporting.figures import attention_view

EVIL = "</script><script>alert('x')</script><img src=x onerror=alert(1)>"


def measurement(subject: str = "a model", kind: str = "attention_entropy", shift: float = 0.0) -> Measurement:
    layers = np.linspace(1.0, 2.0, 4) + shift
    table = layers[:, None] + np.array([0.0, 0.5])
    values = {"mean": table, "p15": table - 0.1, "p85": table + 0.1, "bound": np.full(4, 3.0)}
    values |= {"class_row": table, "normalised": table / 3}
    dims = {name: ("layer", "head")[: value.ndim] for name, value in values.items()}
    return Measurement(kind, subject, values, dims, {"layer": tuple("abcd"), "head": (0, 1)}, {}, {"note": subject})


class Page(HTMLParser):
    """What a browser would find: scripts that run, data, attributes that run, and where things are fetched from."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.figures: list[dict[str, Any]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = (dict(attrs).get("type") or "run") if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside == "run":
            self.scripts.append(data)
        elif self._inside:
            self.figures.append(json.loads(data))

    @property
    def policy(self) -> str:
        return next(str(a["content"]) for _, a in self.tags if a.get("http-equiv") == "Content-Security-Policy")


def written(tmp_path: Path, *measurements: Measurement, title: str = "t") -> str:
    return report(measurements, tmp_path / "page.html", title=title).read_text(encoding="utf-8")


def test_the_figure_holds_the_numbers_of_averaged_repeats(tmp_path: Path) -> None:
    seeds = [replace(measurement("one", shift=float(seed)), settings={"seed": seed}) for seed in (0, 1)]
    page = Page(written(tmp_path, seeds[0], measurement("two"), seeds[1]))
    lines = {trace.get("name"): trace for trace in page.figures[0]["data"]}
    np.testing.assert_allclose(lines["one"]["y"], np.linspace(1.75, 2.75, 4), rtol=1e-5)
    np.testing.assert_allclose(lines["two"]["y"], np.linspace(1.25, 2.25, 4), rtol=1e-5)


def test_the_page_fetches_nothing_and_embeds_plotly_once(tmp_path: Path) -> None:
    text = written(tmp_path, measurement(), measurement(kind="another"))
    addresses = [a[key] for _, a in Page(text).tags for key in ("src", "href", "srcset", "action") if a.get(key)]
    assert addresses and all(str(address).startswith("#") for address in addresses)
    assert text.count("plotly.js v") == 1


def test_only_our_scripts_may_run(tmp_path: Path) -> None:
    page = Page(written(tmp_path, measurement()))
    assert len(page.scripts) == 3 and "unsafe-inline" not in page.policy.partition("style-src")[0]
    for script in page.scripts:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in page.policy
    assert page.policy.startswith("default-src 'none'; script-src 'sha256-")


def test_hostile_strings_are_not_executed(tmp_path: Path) -> None:
    odd = Measurement(EVIL, EVIL, {EVIL: np.ones(2)}, {EVIL: (EVIL,)}, {EVIL: (EVIL, "b")}, {EVIL: EVIL}, {EVIL: EVIL})
    page = Page(written(tmp_path, measurement(EVIL), odd, title=EVIL))
    assert page.scripts == Page(written(tmp_path, measurement())).scripts
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def test_a_kind_without_a_drawing_of_its_own_is_drawn_from_its_axes(tmp_path: Path) -> None:
    text = written(tmp_path, measurement(kind="something_new"))
    names = ("mean", "p15", "p85", "bound", "class_row", "normalised")
    words = [name.replace("_", " ") for name in names]
    assert re.findall(r'data-title="([\w ]+ by layer)"', text) == [f"{name} by layer" for name in words]
    assert "class_row" not in re.sub(r"(?s)<script.*?</script>|data-file=\S+", "", text)  # no names of values


def test_values_outside_of_a_drawing_are_drawn_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(section_view, "draw", lambda kind, measurements: measurements[0].values["of a newer version"])
    strange = Measurement("attention_entropy", "a", {"other": np.ones(3)}, {"other": ("layer",)})
    text = written(tmp_path, strange)
    assert "other by layer" in text and "cannot draw these values (KeyError" in text


def test_differences_are_listed_beside_the_numbers(tmp_path: Path) -> None:
    sure = {"x": np.array(1.0), "x_error": np.array(0.1)}
    first = Measurement("k", "a", sure, dict.fromkeys(sure, ()), errors={"x": "x_error"})
    second = replace(first, subject="b", values={**sure, "x": np.array(3.0)})
    section = written(tmp_path, first, second).partition('id="section-1"')[2]
    text = " ".join(re.sub("<[^>]+>", " ", section).split())
    assert "x 1.00 ± 0.20 3.00 ± 0.20 ▲ +2.00 ± 0.28 clear" in text


def test_abbreviations_are_expanded_on_the_first_screen(tmp_path: Path) -> None:
    text = written(tmp_path, measurement("plain"), measurement("ViT + CB"), title="With and without ADL")
    head = text.partition("<header")[2].partition("</header>")[0]
    assert "CB: Context Broadcasting; ADL: attention diversification loss." in head and "TAP" not in head
    assert "HDVW, <i>How Do Vision Transformers Work?</i>" in text
    assert "glossary" not in written(tmp_path, measurement("CBAM")).partition("<header")[2]


def test_every_card_has_its_number_of_images(tmp_path: Path) -> None:
    """Accuracy on clean images is 47 % on 32 images and 44 % on 96: both cards say of how many."""
    given = [
        replace(measurement(who, kind), provenance={"images": count, "data": "d"})
        for kind, counts in (("j", (32, 32)), ("k", (96, 1200)))
        for who, count in zip("ab", counts, strict=True)
    ]
    cards = written(tmp_path, *given).split('<section class="card')[1:]
    text = [" ".join(re.sub("<[^>]+>", " ", card.partition("</h3>")[0]).split()) for card in cards]
    assert "n = 32 images" in text[0] and "n = 96 to 1,200 images" in text[1]
    assert 'class="images"' not in written(tmp_path, measurement("a", "k"))


def test_intervals_are_explained_once(tmp_path: Path) -> None:
    sure = {"x": np.array(1.0), "x_error": np.array(0.1)}
    known = Measurement("k", "a", sure, dict.fromkeys(sure, ()), errors={"x": "x_error"})
    epochs = Measurement("training", "a", {"top1": np.array([1.0, 2.0])}, {"top1": ("epoch",)}, {"epoch": (0, 1)})
    notes = [
        (text.count("± is half of the 95 % interval"), "last epoch." in text)
        for text in (written(tmp_path, known), written(tmp_path, epochs))
    ]
    assert notes == [(1, False), (1, True)]


def test_shared_provenance_is_stated_once(tmp_path: Path) -> None:
    both = [Measurement(kind, "a", {"x": np.ones(2)}, {"x": ("layer",)}, {}, {"tau": 1}, {"device": "cpu", "of": kind})
            for kind in ("k", "j")]  # fmt: skip
    end = written(tmp_path, *both).partition('<section id="provenance"')[2].partition("<script")[0]
    text = " ".join(re.sub("<[^>]+>", " ", end).split())
    assert text.count("cpu") == 1 and text.count("settings, tau 1") == 1 and "of k k j j" in text


def test_provenance_states_a_value_once_with_the_models_that_have_it(tmp_path: Path) -> None:
    parts = [replace(measurement("one", shift=i), provenance={"device": "cpu", "part": f"{i} of 3"}) for i in range(3)]
    end = written(tmp_path, *parts, measurement("two")).partition('<section id="provenance"')[2].partition("<script")[0]
    text = " ".join(re.sub("<[^>]+>", " ", end).split())
    assert "part 0 of 3, 1 of 3, 2 of 3 one" in text and "repeats 3 one" in text and "device cpu one" in text
    assert text.count("cpu") == 1 and "note two two" in text


def test_panels_beside_each_other_and_mosaics_do_not_shrink(tmp_path: Path) -> None:
    looks = [LOOKS[kind]() for kind in ("attention_diversity", "attention_entropy")]
    least = {
        a["data-file"]: str(a["class"]).split()[1:] for _, a in Page(written(tmp_path, *looks)).tags if "data-file" in a
    }
    assert least["attention_diversity-2"] == ["wide"] and least["attention_diversity-4"] == ["pair"]
    assert not least["attention_diversity-1"] and not least["attention_entropy-1"]


def test_unknown_errors_have_no_bars() -> None:
    plot = empty_plot("x", "y")
    for stroke in (line, bars):
        stroke(plot, [1, 2], [1.0, 2.0], "a", 0, error=[np.nan, np.nan])
        stroke(plot, [1, 2], [1.0, 2.0], "a", 0, error=[np.nan, 1.0])
    assert [trace.error_y.array is None for trace in plot.data] == [True, False, True, False]


def test_models_have_distinct_styles() -> None:
    plot = empty_plot("x", "y")
    for index in range(36):
        line(plot, [1], [1.0], str(index), index)
    looks = {(trace.line.color, trace.line.dash, trace.marker.symbol) for trace in plot.data}
    assert len(looks) == 36 and len({trace.line.color for trace in plot.data[:6]}) == 6


def test_attention_views_are_separate_html_without_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(measurements: list[Measurement]) -> list[Fragment]:
        return [Fragment(f"<p id=own>{[(m.subject, m.values['mean'].dtype.kind) for m in measurements]}</p>")]

    monkeypatch.setattr(attention_view, "draw", draw)
    pictures = {"mean": np.arange(4, dtype=np.uint8)}, {"mean": ("pixel",)}
    text = written(tmp_path, *(Measurement("attention_view", who, *pictures) for who in "aba"), measurement("a"))
    assert "<p id=own>[('a', 'u'), ('b', 'u')]</p>" in text
    assert "Numbers of Attention view" not in text and "Numbers of Attention entropy" in text


def test_stored_measurements_are_read_once_each(tmp_path: Path) -> None:
    for name in ("x", "y"):
        measurement(name).save(tmp_path / "runs" / name)
    (tmp_path / "runs" / "recipe.json").write_text("{}")
    found = read([tmp_path / "runs", tmp_path / "runs" / "x.json"])
    assert [m.subject for m in found] == ["x", "y"]
    np.testing.assert_array_equal(found[0].values["mean"], measurement().values["mean"])


def test_the_first_measured_model_is_the_baseline(tmp_path: Path) -> None:
    for name, time in (("a", "2026-11-15T10:00:05"), ("b", "2026-11-15T10:00:01")):
        replace(measurement(name), provenance={"time": time}).save(tmp_path / name)
    assert [m.subject for m in read([tmp_path])] == ["b", "a"]


def test_all_unreadable_files_are_named(tmp_path: Path) -> None:
    for name in ("good", "cut", "lonely"):
        measurement(name).save(tmp_path / name)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:50])
    (tmp_path / "lonely.npz").unlink()
    with pytest.raises(vitlab.VitlabError, match="2 of 3 files cannot be read.*cut.json.*lonely.json"):
        read([tmp_path])


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(vitlab.VitlabError, match="nothing to report"):
        report([], tmp_path / "page.html")
    with pytest.raises(vitlab.VitlabError, match="no measurements"):
        read([tmp_path])


def test_the_attention_view_comes_first_then_the_groups_in_their_order(tmp_path: Path) -> None:
    kinds = ("loss_landscape", "feature_variance", "something_new", "attention_entropy", "training")
    made = [Measurement(kind, "a", {"x": np.array(1.0)}, {"x": ()}) for kind in kinds]
    text = written(tmp_path, *made)
    headings = re.findall(r'<h2 id="group-\d+-title">(.*?)</h2>', text)
    assert headings == ["Accuracy and robustness", "Attention", "Features", "Loss", "Other measurements"]


def test_every_cell_of_the_overview_leads_to_its_section(tmp_path: Path) -> None:
    values = {"x": np.array(1.0), "x_error": np.array(0.1)}
    first = [Measurement(k, "a", values, dict.fromkeys(values, ()), errors={"x": "x_error"}) for k in ("k", "j")]
    second = [
        replace(m, subject="b", values={**values, "x": np.array(x)}) for m, x in zip(first, (0.2, 1.1), strict=True)
    ]
    text = written(tmp_path, *first, *second)
    heat = text.partition('<table class="heat">')[2].partition("</table>")[0]
    cells = re.findall(r'<td class="level([^"]*)"><a href="#(section-\d)".*?</a></td>', heat)
    assert cells == [("-low2", "section-1"), ("", "section-2")]  # 0.8 is 2.9 half widths of 0.277, 0.1 is 0.36
    for target in ("section-1", "section-2"):
        assert f'<section class="card" id="{target}"' in text or f'<section class="card row" id="{target}"' in text
    badges = re.findall(r'<li><a href="#section-\d">\w <span class="badge (\w+)">', text)
    assert badges == ["clear", "unclear"]


def test_a_section_differs_partly_if_only_another_number_does(tmp_path: Path) -> None:
    """x: 0.1 is within ±0.277, y: 5 is not. A third number of unknown noise does not count."""

    def two(subject: str, x: float, y: float) -> Measurement:
        values = {"x": x, "y": y, "z": x, "e": 0.1}
        arrays = {name: np.array(value) for name, value in values.items()}
        about = {"images": 64}
        return Measurement("k", subject, arrays, dict.fromkeys(arrays, ()), {}, {}, about, {"x": "e", "y": "e"})

    text = written(tmp_path, two("a", 1.0, 1.0), two("b", 1.1, 6.0))
    assert re.findall(r'<span class="badge (\w+)">(\w+)</span>', text) == [("part", "partly")] * 2
    assert "No measurable difference in x" in text and "does any model differ from a by more than the noise?" in text


def test_images_of_a_training_are_test_images_and_its_losses_are_explained(tmp_path: Path) -> None:
    losses = {"train_loss": np.array([1.5]), "loss": np.array([1.2])}
    curve = Measurement(
        "training", "a", losses, dict.fromkeys(losses, ("epoch",)), {"epoch": (1,)}, {}, {"images": 426}
    )
    text = written(tmp_path, curve)
    assert "n = 426 test images" in text and "The test loss has none of these and may be lower." in text


def test_generated_data_is_explained(tmp_path: Path) -> None:
    text = written(tmp_path, replace(measurement(), provenance={"data": "scenes(test=9, cues='agree') test[:4] ab"}))
    assert "generated textured shapes, &#39;agree&#39;: each of five shapes has its own texture" in text
    assert "generated textured shapes" not in written(tmp_path, measurement())


def test_models_are_in_one_legend_and_not_in_those_of_figures(tmp_path: Path) -> None:
    page = Page(written(tmp_path, measurement("a"), measurement("b")))
    named = [trace for figure in page.figures for trace in figure["data"] if trace.get("name") in ("a", "b")]
    assert named and all(trace["showlegend"] is False for trace in named)
    alone = Page(written(tmp_path, measurement("a"), measurement("a", "other"), measurement("b", "other", 1.0),
        measurement("c", "third"), measurement("b", "third")))  # fmt: skip
    last = alone.figures[-1]["data"]  # a section without the first model has other colours than the legend
    assert {trace["name"] for trace in last if trace.get("showlegend") is not False} == {"b", "c"}


def test_eigenvalues_that_did_not_converge_are_noted(tmp_path: Path) -> None:
    values = {"eigenvalues": np.array([[-9.0, 3.0]]), "converged": np.array([[True, False]])}
    values |= {"negative_proportion": np.array(0.5), "positive_average": np.array(3.0)}
    dims: dict[str, tuple[str, ...]] = {name: ("mini_batch", "rank")[: each.ndim] for name, each in values.items()}
    page = written(tmp_path, Measurement("hessian_spectrum", "a", values, dims, {}, {"limit": 12}))
    assert "Not converged within 12 products: 1 of 2 eigenvalues of a." in page


def test_a_section_states_what_its_numbers_are_combined_over(tmp_path: Path) -> None:
    def written(*provenance: dict[str, Any]) -> str:
        given = [Measurement("k", "a", {"x": np.array(1.0)}, {"x": ()}, {}, {}, each) for each in provenance]
        return report(given, tmp_path / "page.html").read_text(encoding="utf-8")

    data = "scenes test[8 of 32, evenly spaced, part {} of 2] ab"
    parts = written(*({"data": data.format(part), "part": part} for part in range(2)))
    assert "combined over 2 disjoint parts of the images, for one set of weights." in parts
    assert "combined over 2 runs." in written({"seed": 0}, {"seed": 1})
