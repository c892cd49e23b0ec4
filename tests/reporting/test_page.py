"""The page: self-contained, escaped, and with the numbers that went in."""

from __future__ import annotations

import base64
import hashlib
import html
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
from vitlab.reporting import page as page_module
from vitlab.reporting import read, report
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


def test_nothing_is_fetched_and_plotly_is_there_once(tmp_path: Path) -> None:
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


def test_hostile_strings_run_nothing(tmp_path: Path) -> None:
    odd = Measurement(EVIL, EVIL, {EVIL: np.ones(2)}, {EVIL: (EVIL,)}, {EVIL: (EVIL, "b")}, {EVIL: EVIL}, {EVIL: EVIL})
    page = Page(written(tmp_path, measurement(EVIL), odd, title=EVIL))
    assert page.scripts == Page(written(tmp_path, measurement())).scripts
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def test_a_kind_without_a_drawing_of_its_own_is_drawn_from_its_axes(tmp_path: Path) -> None:
    text = written(tmp_path, measurement(kind="something_new"))
    names = ("mean", "p15", "p85", "bound", "class_row", "normalised")
    assert re.findall(r">(\w+ by layer)", text) == [f"{name} by layer" for name in names]


def test_values_that_a_drawing_cannot_draw_are_drawn_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "draw", lambda kind, measurements: measurements[0].values["of a newer version"])
    strange = Measurement("attention_entropy", "a", {"other": np.ones(3)}, {"other": ("layer",)})
    text = written(tmp_path, strange)
    assert "other by layer" in text and "cannot draw these values (KeyError" in text


def test_differences_stand_beside_the_numbers(tmp_path: Path) -> None:
    sure = {"x": np.array(1.0), "x_error": np.array(0.1)}
    first = Measurement("k", "a", sure, dict.fromkeys(sure, ()), errors={"x": "x_error"})
    second = replace(first, subject="b", values={**sure, "x": np.array(3.0)})
    section = written(tmp_path, first, second).partition('<section id="section-1"')[2]
    text = " ".join(re.sub("<[^>]+>", " ", section).split())
    assert "x 1 ± 0.2 3 ± 0.2 +2 ± 0.28 larger than the noise" in text


def test_a_table_explains_only_what_it_shows(tmp_path: Path) -> None:
    sure = {"x": np.array(1.0), "x_error": np.array(0.1)}
    known = Measurement("k", "a", sure, dict.fromkeys(sure, ()), errors={"x": "x_error"})
    epochs = Measurement("training", "a", {"top1": np.array([1.0, 2.0])}, {"top1": ("epoch",)}, {"epoch": (0, 1)})
    notes = [
        ("half of the 95 %" in text, "last epoch." in text)
        for text in (written(tmp_path, known), written(tmp_path, epochs))
    ]
    assert notes == [(True, False), (False, True)]


def test_provenance_says_once_what_all_share(tmp_path: Path) -> None:
    both = [Measurement(kind, "a", {"x": np.ones(2)}, {"x": ("layer",)}, {}, {"tau": 1}, {"device": "cpu", "of": kind})
            for kind in ("k", "j")]  # fmt: skip
    end = written(tmp_path, *both).partition('<section id="provenance"')[2].partition("<script")[0]
    assert end.count("cpu") == 1 and end.count("tau 1") == 1 and "of: k" in end and "of: j" in end


def test_provenance_has_one_row_for_the_repeats_of_a_model(tmp_path: Path) -> None:
    parts = [replace(measurement("one", shift=i), provenance={"device": "cpu", "part": f"{i} of 3"}) for i in range(3)]
    end = written(tmp_path, *parts, measurement("two")).partition('<section id="provenance"')[2].partition("<script")[0]
    assert end.count("<td>one</td>") == end.count("<td>two</td>") == 1
    assert "part: 0 of 3, 1 of 3, 2 of 3; repeats: 3" in end and end.count("cpu") == 1


def test_panels_beside_each_other_and_mosaics_do_not_shrink(tmp_path: Path) -> None:
    looks = [LOOKS[kind]() for kind in ("attention_diversity", "attention_entropy")]
    wide = {
        a["data-file"]: "wide" in str(a["class"]) for _, a in Page(written(tmp_path, *looks)).tags if "data-file" in a
    }
    assert wide["attention_diversity-2"] and wide["attention_diversity-4"]  # a mosaic, two panels
    assert not wide["attention_diversity-1"] and not wide["attention_entropy-1"]


def test_a_notebook_leaves_room_for_a_fragment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_view, "draw", lambda measurements: [Fragment("<p>pictures</p>")])
    view = Measurement("attention_view", "a", {"image": np.zeros(4, np.uint8)}, {"image": ("pixel",)})
    assert "height:900px" in view._repr_html_()


def test_unknown_errors_have_no_bars() -> None:
    plot = empty_plot("x", "y")
    for stroke in (line, bars):
        stroke(plot, [1, 2], [1.0, 2.0], "a", 0, error=[np.nan, np.nan])
        stroke(plot, [1, 2], [1.0, 2.0], "a", 0, error=[np.nan, 1.0])
    assert [trace.error_y.array is None for trace in plot.data] == [True, False, True, False]


def test_no_two_of_many_models_look_alike() -> None:
    plot = empty_plot("x", "y")
    for index in range(36):
        line(plot, [1], [1.0], str(index), index)
    looks = {(trace.line.color, trace.line.dash, trace.marker.symbol) for trace in plot.data}
    assert len(looks) == 36 and len({trace.line.color for trace in plot.data[:6]}) == 6


def test_attention_views_are_html_of_their_own_without_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(measurements: list[Measurement]) -> list[Fragment]:
        return [Fragment(f"<p id=own>{[(m.subject, m.values['mean'].dtype.kind) for m in measurements]}</p>")]

    monkeypatch.setattr(attention_view, "draw", draw)
    pictures = {"mean": np.arange(4, dtype=np.uint8)}, {"mean": ("pixel",)}
    text = written(tmp_path, *(Measurement("attention_view", who, *pictures) for who in "aba"), measurement("a"))
    assert "<p id=own>[('a', 'u'), ('b', 'u')]</p>" in text
    assert "Numbers of attention view" not in text and "Numbers of attention entropy" in text


def test_a_notebook_cell_is_a_closed_frame() -> None:
    cell = measurement(EVIL)._repr_html_()
    ((tag, attributes),) = Page(cell).tags
    assert tag == "iframe" and attributes["sandbox"] == "allow-scripts allow-downloads"
    inner = Page(str(attributes["srcdoc"]))
    assert len(inner.scripts) == 3 and inner.figures and html.unescape(inner.policy).startswith("default-src 'none'")


def test_stored_measurements_are_read_again_each_once(tmp_path: Path) -> None:
    for name in ("x", "y"):
        measurement(name).save(tmp_path / "runs" / name)
    (tmp_path / "runs" / "recipe.json").write_text("{}")
    found = read([tmp_path / "runs", tmp_path / "runs" / "x.json"])
    assert [m.subject for m in found] == ["x", "y"]
    np.testing.assert_array_equal(found[0].values["mean"], measurement().values["mean"])


def test_what_was_measured_first_is_the_baseline(tmp_path: Path) -> None:
    for name, time in (("a", "2026-11-15T10:00:05"), ("b", "2026-11-15T10:00:01")):
        replace(measurement(name), provenance={"time": time}).save(tmp_path / name)
    assert [m.subject for m in read([tmp_path])] == ["b", "a"]


def test_unreadable_files_are_all_named(tmp_path: Path) -> None:
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
