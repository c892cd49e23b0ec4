"""Contract of the figures of attention and feature instruments."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cases.looks import LOOKS
from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, draw

each_kind = pytest.mark.parametrize("kind", LOOKS)


def strict(figure: Figure) -> dict[str, Any]:
    """A plot as a browser reads it: no NaN, no Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    parsed: dict[str, Any] = json.loads(figure.plot.to_json(), parse_constant=refuse)
    return parsed


def holed(measurement: Measurement) -> Measurement:
    """NaN at the first place of every float value that has more than one."""
    values = {name: np.array(value) for name, value in measurement.values.items()}
    for value in values.values():
        if value.dtype.kind == "f" and value.ndim and len(value) > 1:
            value[0] = np.nan
    return replace(measurement, values=values)


def check(figures: list[Figure]) -> None:
    assert figures
    for figure in figures:
        page = strict(figure)
        assert page["data"] and figure.paper
        assert not re.search(r"\b(nan|inf)\b", figure.finding), figure.finding
        axes = [axis for key, axis in page["layout"].items() if re.fullmatch(r"[xy]axis\d*", key)]
        assert any(axis.get("title", {}).get("text") for axis in axes)


@each_kind
@pytest.mark.parametrize("count", [1, 2, 6])
def test_models_of_different_depth_and_heads(kind: str, count: int) -> None:
    found = [LOOKS[kind](f"model {i}", depth=2 + i, heads=1 + i) for i in range(count)]
    figures = draw(kind, found)
    check(figures)
    assert any(re.search(r"\d", figure.finding) for figure in figures)


@each_kind
def test_one_layer(kind: str) -> None:
    check(draw(kind, [LOOKS[kind](depth=1), LOOKS[kind]("b", depth=1, heads=1)]))


@each_kind
def test_deep_models_stay_small(kind: str) -> None:
    figures = draw(kind, [LOOKS[kind](name, depth=80, heads=16) for name in "abc"])
    check(figures)
    assert sum(len(figure.plot.to_json()) for figure in figures) < 1_500_000


@each_kind
def test_gaps(kind: str) -> None:
    check(draw(kind, [holed(LOOKS[kind]("a")), LOOKS[kind]("b")]))
    check(draw(kind, [LOOKS[kind]("a"), holed(LOOKS[kind]("b"))]))


@each_kind
def test_numbers_are_finite_or_missing_and_names_are_escaped(kind: str) -> None:
    figures = draw(kind, [LOOKS[kind]("<b>x</b>"), LOOKS[kind]("a & <i>y")])
    for figure in figures:
        text = figure.plot.to_json()
        assert "<b>" not in text and "<i>" not in text and "\\u003cb\\u003e" not in text.lower()


@each_kind
def test_standard_errors_of_repeats_are_taken(kind: str) -> None:
    """Averages over repeats carry `<name>_error` beside every number."""
    plain = LOOKS[kind]()
    floats = {name: value for name, value in plain.values.items() if np.asarray(value).dtype.kind == "f"}
    errors = {f"{name}_error": np.full(np.shape(value), 0.01) for name, value in floats.items()}
    dims = {**plain.dims, **{f"{name}_error": plain.dims[name] for name in floats}}
    named = {name: f"{name}_error" for name in floats}
    given = replace(plain, values={**plain.values, **errors}, dims=dims, errors=named)
    check(draw(kind, [given, replace(given, subject="b")]))


@each_kind
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_models_without_known_values(kind: str) -> None:
    """Titles and panels say so, and no NaN is printed."""
    whole = LOOKS[kind]("a")
    values = {n: np.full_like(v, np.nan) if np.asarray(v).dtype.kind == "f" else v for n, v in whole.values.items()}
    empty = replace(whole, values=values)
    for given in ([empty], [replace(whole, subject="b"), empty]):
        for figure in draw(kind, given):
            assert not re.search(r"[\b+-](nan|inf)|\b(nan|inf)", figure.finding), figure.finding
            assert "nan" not in " ".join(str(note.text) for note in figure.plot.layout.annotations)
