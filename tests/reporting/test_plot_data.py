"""Plots as JSON: every kind of array plotly knows comes out as plain lists, and nothing ends the script element."""

from __future__ import annotations

import json

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from vitlab.reporting.plot_data import to_json


@settings(deadline=None, max_examples=25)
@given(stn.arrays(np.float64, stn.array_shapes(min_dims=2, max_dims=2, max_side=5), elements=st.floats(width=32)))
def test_matrices_are_lists_with_five_digits(z: np.ndarray) -> None:
    (trace,) = json.loads(to_json(go.Figure(go.Heatmap(z=z))))["data"]
    expected = [[float(f"{v:.5g}") if np.isfinite(v) else None for v in row] for row in z.tolist()]
    assert trace["z"] == expected


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "float32", "float64", "bool"])
def test_all_types(kind: str) -> None:
    y = np.array([0, 1, 1], dtype=kind)
    (trace,) = json.loads(to_json(go.Figure(go.Scatter(y=y))))["data"]
    assert trace["y"] == y.tolist()


def test_lines_keep_eight_digits() -> None:
    (trace,) = json.loads(to_json(go.Figure(go.Scatter(y=np.array([np.pi, 1e-9 * np.e])))))["data"]
    assert trace["y"] == [3.1415927, 2.7182818e-9]


@given(st.text())
def test_no_string_closes_the_script_element(text: str) -> None:
    made = to_json(go.Figure(go.Scatter(y=[1], name=text)))
    assert not set("<>&") & set(made) and json.loads(made)["data"][0]["name"] == text
