"""The view inside a report: everything is in the page, every string is text, and clicking works without a server."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import browser_page, chromium, until  # noqa: F401 (fixtures)
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.reporting.figures.attention_view import SCRIPTS, draw

HOSTILE = "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"


def view(subject: str = "plain", lattice: int = 3, seed: int = 0) -> Measurement:
    """Two images, a layer with a class token and two heads, a convolution, and a class-attention layer."""
    random = np.random.default_rng(seed)
    names = ("first", "conv", "last")
    values = {
        "pictures": random.integers(0, 255, (2, 8, 12, 3), dtype=np.uint8),
        "label": np.array(["cat", ""]),
        "class": np.array([["cat", "dog"], [HOSTILE, "cat"]]),
        "probability": np.array([[0.75, 0.25], [0.5, 0.5]]),
        "lens class": np.array([[["dog"], [""], ["cat"]]] * 2),
        "lens probability": np.array([[[0.5], [np.nan], [0.75]]] * 2),
        "lens information": np.array([[0.05, np.nan, 0.3]] * 2),
        "grid": np.array([[2, 4], [0, 0], [2, 4]]),
        "bound": np.log([9, 1, 9]),
        "kind": np.array(["attention", "conv", "class attention"]),
        "why": np.array(["", "a convolution mixes its tokens", ""]),
        "why no lens": np.array(["", "another shape", ""]),
    }
    dims = {
        "pictures": ("image", "row", "column", "channel"),
        "label": ("image",),
        **dict.fromkeys(("class", "probability"), ("image", "rank")),
        **dict.fromkeys(("lens class", "lens probability"), ("image", "layer", "lens rank")),
        "lens information": ("image", "layer"),
        "grid": ("layer", "side"),
        **dict.fromkeys(("bound", "kind", "why", "why no lens"), ("layer",)),
    }
    for name, queries in (("first", 1 + lattice * lattice), ("last", 1)):
        found = {
            "maps": random.integers(0, 255, (2, 2, queries, 8), dtype=np.uint8),
            "peak": random.random((2, 2, queries)),
            "prefix": random.random((2, 2, queries, 1)),
            "entropy": 2 * random.random((2, 2, queries)),
        }
        for what, value in found.items():
            values[f"{what} of {name}"] = value
            dims[f"{what} of {name}"] = ("image", *(f"{what} axis {i} of {name}" for i in range(1, value.ndim)))
    return Measurement("attention_view", subject, values, dims, {"layer": names}, {"lattice": lattice})


def render(measurements: list[Measurement]) -> str:
    (fragment,) = draw(measurements)
    return fragment.html


def data(fragment: str) -> dict[str, Any]:
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', fragment, re.S)[1])


def test_the_fragment_contains_the_numbers() -> None:
    found, shown = view(), data(render([view(), view("CB", seed=1)]))
    assert shown["grid"] == [3, 3] and [model["name"] for model in shown["models"]] == ["plain", "CB"]
    layer = shown["models"][0]["images"][1]["layers"][0]
    assert base64.b64decode(layer["stored"]["maps"]) == found.values["maps of first"][1].tobytes()
    np.testing.assert_allclose(layer["stored"]["peaks"], found.values["peak of first"][1], atol=1e-4)
    assert (layer["heads"], layer["grid"], layer["queries"]) == (2, [2, 4], 1)
    assert [image["label"] for image in shown["models"][0]["images"]] == ["cat", None]
    conv = shown["models"][0]["images"][0]["layers"][1]
    assert layer["information"] == 0.05 and "information" not in conv
    assert conv["lens"] is None and conv["why"] == "a convolution mixes its tokens" and "stored" not in conv


def test_hostile_strings_remain_data() -> None:
    fragment = render([view(HOSTILE)])
    assert HOSTILE not in fragment and data(fragment)["models"][0]["name"] == HOSTILE
    assert len(re.findall("</script>", fragment)) == 1 + len(SCRIPTS)


def test_views_with_other_grids_raise() -> None:
    with pytest.raises(VitlabError, match=r"invalid lattice=\[3, 7\]"):
        render([view(), view(lattice=7)])


def test_clicking_without_a_server(browser_page: Any, tmp_path: Path) -> None:  # noqa: F811
    fragments = render([view(), view(HOSTILE, seed=1)]) + render([view()])  # two views on one page
    (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8><title>honest</title>{fragments}", "utf-8")
    page = browser_page
    page.goto((tmp_path / "page.html").as_uri())
    until(page, "document.querySelectorAll('.av-panel .av-map').length === 12")
    assert page.locator(".av-panel").count() == 3 and page.locator(".av-why").nth(1).text_content()
    assert page.locator(".av-notes").first.text_content() == "No prediction from layer 2: another shape."
    faded = page.locator(".av-panel:first-child .av-lens").evaluate_all("all => all.map(e => e.className)")
    assert faded[:3] == ["av-lens av-faded", "av-lens av-none", "av-lens av-settled"]
    assert page.locator(".av-verdict").first.text_content() == "✓ right"
    found, picture = view(), page.locator(".av-picture").first
    titles = ".av-panel:first-child .av-entropy"
    here = page.locator(titles).first.get_attribute("title")
    box = picture.bounding_box()
    page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + 0.1 * box["height"])
    until(page, "document.querySelector('.av-status').textContent.includes('row 1 of 3, column 3 of 3')")
    there = page.locator(titles).first.get_attribute("title")
    assert there.startswith(f"{found.values['entropy of first'][0, :, 1 + 2].mean():.3f} of at most 2.197") != here
    assert page.locator(".av-why").nth(2).text_content() == "only the class token is a query in this layer"
    page.get_by_role("button", name="class token").first.click()
    until(page, "document.querySelector('.av-status').textContent.includes('class token')")
    assert not page.locator(".av-why").nth(2).text_content()
    page.get_by_role("button", name="image 2").first.click()
    until(page, "document.querySelector('.av-predictions').textContent.includes('onerror')")
    assert page.title() == "honest" and not page.locator("img[src=x]").count()


def test_values_that_are_not_finite_are_omitted_with_a_note() -> None:
    found = view()
    found.values["entropy of first"][0, 0, 0] = np.nan
    found.values["probability"][1, 0] = np.inf
    fragment = render([found])
    shown = json.loads(
        re.search(r'<script type="application/json"[^>]*>(.*?)</script>', fragment, re.S)[1], parse_constant=pytest.fail
    )
    broken, whole = (image["layers"][0] for image in shown["models"][0]["images"])
    assert "not finite" in broken["why"] and broken["heads"] == 0 and whole["heads"] == 2
    assert [len(image["predictions"]) for image in shown["models"][0]["images"]] == [2, 0]
    assert "Predictions that are not finite are omitted: plain." in fragment
    assert "not finite are omitted" not in render([view()])
