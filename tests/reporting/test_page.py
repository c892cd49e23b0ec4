"""The page: self-contained, escaped, and with the numbers that went in."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import vitlab
from vitlab.core.measurement import Measurement
from vitlab.reporting import read, report

EVIL = "</script><script>alert('x')</script><img src=x onerror=alert(1)>"


def measurement(subject: str = "a model", kind: str = "attention_entropy") -> Measurement:
    layers = np.linspace(1.0, 2.0, 4)
    table = layers[:, None] + np.array([0.0, 0.5])
    values = {"mean": table, "p15": table - 0.1, "p85": table + 0.1, "bound": np.full(4, 3.0)}
    dims = {name: ("layer", "head")[: value.ndim] for name, value in values.items()}
    return Measurement(kind, subject, values, dims, {"layer": tuple("abcd"), "head": (0, 1)}, {}, {"note": subject})


def figures(page: str) -> list[dict]:
    return [json.loads(text) for text in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)]


def test_the_figure_holds_the_numbers(tmp_path: Path) -> None:
    page = report([measurement("one"), measurement("two")], tmp_path / "page.html").read_text()
    (figure,) = figures(page)
    lines = {trace.get("name"): trace for trace in figure["data"]}
    assert {"one", "two", "log N (uniform)"} <= set(lines)
    drawn = lines["one"]["y"]
    assert len(drawn["bdata"] if isinstance(drawn, dict) else drawn) > 0


def test_nothing_is_fetched_and_plotly_is_there_once(tmp_path: Path) -> None:
    page = report([measurement(), measurement(kind="another")], tmp_path / "page.html").read_text()
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    assert page.count("plotly.js v") == 1


def test_hostile_strings_run_nothing(tmp_path: Path) -> None:
    page = report([measurement(EVIL), measurement("b", kind="k")], tmp_path / "page.html", title=EVIL).read_text()
    assert "<script>alert" not in page and "<img src=x" not in page


def test_a_kind_without_a_drawing_of_its_own_is_drawn_from_its_axes(tmp_path: Path) -> None:
    page = report([measurement(kind="something_new")], tmp_path / "page.html").read_text()
    titles = [figure["layout"]["title"]["text"] for figure in figures(page)]
    assert titles == ["mean by layer", "p15 by layer", "p85 by layer", "bound by layer"]


def test_stored_measurements_are_read_again(tmp_path: Path) -> None:
    for name in ("x", "y"):
        measurement(name).save(tmp_path / "runs" / name)
    found = read([tmp_path / "runs"])
    assert [m.subject for m in found] == ["x", "y"]
    np.testing.assert_array_equal(found[0].values["mean"], measurement().values["mean"])


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(vitlab.VitlabError, match="nothing to report"):
        report([], tmp_path / "page.html")
    with pytest.raises(vitlab.VitlabError, match="no measurements"):
        read([tmp_path])
