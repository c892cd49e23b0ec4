"""Measurements that earlier versions wrote (tests/stored) load, and repeats of them are combined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vitlab.core.measurement import Measurement
from vitlab.core.old_files import errors_by_name, pooling_by_kind
from vitlab.core.repeats import average

STORED = Path(__file__).parents[1] / "stored"
VERSIONS = ("without_markers", "with_markers")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["attention_entropy", "hessian_spectrum"])
def test_an_old_measurement_loads_and_is_saved_again(version: str, name: str, tmp_path: Path) -> None:
    measurement = Measurement.load(STORED / version / name)
    assert measurement.kind == name and measurement.provenance["images"] == 4
    with np.load(STORED / version / f"{name}.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == set(measurement.values)
        assert all(np.array_equal(arrays[key], measurement.values[key]) for key in arrays.files)
    measurement.save(tmp_path / name)
    assert Measurement.load(tmp_path / name) == measurement


def test_both_versions_hold_the_same_values() -> None:
    for name in ("attention_entropy", "hessian_spectrum"):
        first, second = (Measurement.load(STORED / version / name) for version in VERSIONS)
        assert first.values.keys() <= second.values.keys()
        for key in first.values:
            np.testing.assert_allclose(first.values[key], second.values[key])
            assert first.dims[key] == second.dims[key]


def test_a_hessian_without_rules_is_pooled_as_one_with_rules() -> None:
    pooled = []
    for version in VERSIONS:
        first = Measurement.load(STORED / version / "hessian_spectrum")
        second = replace(first, values={**first.values, "eigenvalues": -2 * first.values["eigenvalues"]})
        parts = zip("ab", (first, second), strict=True)
        pooled.append(average([replace(part, provenance={**part.provenance, "data": data}) for data, part in parts]))
    eigenvalues = first.values["eigenvalues"]
    for found in pooled:
        assert found.values["eigenvalues"].shape == (2, 5)
        assert found.values["negative_proportion"] == np.mean([*(eigenvalues < 0), *(eigenvalues > 0)])
    assert pooled[0].values.keys() == pooled[1].values.keys()


def test_errors_are_recognised_by_name() -> None:
    dims = {"drop": ("mask",), "drop_error": ("mask",), "clean_accuracy": (), "clean_error": (), "loss": ()}
    assert errors_by_name(dims) == {"drop": "drop_error", "clean_accuracy": "clean_error"}
    assert errors_by_name({"test_error": (), "test_error_interval": ("bound",)}) == {}
    assert pooling_by_kind("attention_entropy", ["mean"]) == {}
