"""The maps of causal traces: every number at its layer and token."""

from __future__ import annotations

import numpy as np
import pytest

from vitlab.core.measurement import Measurement
from vitlab.reporting.figures.causal_trace import draw


def trace(prefix: int) -> Measurement:
    draws = np.random.default_rng(0)
    values = {"tokens": draws.normal(size=(3, 2, 4)) / 100, "total_effect": np.array(0.4)}
    dims = {"tokens": ("layer", "row", "column"), "total_effect": ()}
    if prefix:
        values["prefix"], dims["prefix"] = draws.random((3, prefix)), ("layer", "prefix")
    return Measurement("causal_trace", "a", values, dims, settings={"corruption": "fog"})


@pytest.mark.parametrize("prefix", [0, 1, 2])
def test_the_map_of_layers_and_tokens_has_every_effect(prefix: int) -> None:
    found = trace(prefix)
    plot = draw([found, found])[1].plot
    first, second = plot.data
    cells = 100 * found.values["tokens"]
    assert np.shape(first.z) == (3, prefix + 8) and first.showscale and not second.showscale
    for layer in range(3):
        for token in range(prefix):
            assert first.z[layer][token] == pytest.approx(100 * found.values["prefix"][layer, token], abs=0.01)
        for row in range(2):
            for column in range(4):
                where = prefix + 4 * row + column
                assert first.z[layer][where] == pytest.approx(cells[layer, row, column], abs=0.01)
                assert first.text[layer][where] == f"row {row + 1}, column {column + 1}"
    assert first.zmax == -first.zmin == pytest.approx(100 * np.abs(found.values["tokens"]).max())
    ticks = dict(zip(plot.layout.xaxis.ticktext, plot.layout.xaxis.tickvals, strict=True))
    assert ticks["1"] == prefix + 1.5 and ticks["2"] == prefix + 5.5
    assert ("c" in ticks) == bool(prefix)
