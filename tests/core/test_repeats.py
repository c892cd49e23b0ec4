"""Repeats: means and standard errors against loops, and errors for measurements that are not repeats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.old_files import errors_by_name
from vitlab.core.repeats import auxiliary, average, distinct, standard_error


def found(values: dict[str, Any], subject: str = "a model", **notes: Any) -> Measurement:
    arrays = {name: np.asarray(value) for name, value in values.items()}
    dims = {name: ("layer", "head")[: array.ndim] for name, array in arrays.items()}
    about = notes.pop("settings", {})
    return Measurement("loss", subject, arrays, dims, {}, about, notes, errors_by_name(dims))


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 5), st.integers(1, 4), st.integers(0, 2**31))
def test_mean_and_error_are_those_of_scipy(count: int, layers: int, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(count, layers))
    mean = average([found({"nll": row}) for row in rows])
    np.testing.assert_allclose(mean.values["nll"], rows.mean(0))
    np.testing.assert_allclose(mean.values["nll_error"], stats.sem(rows, axis=0))
    assert mean.dims["nll_error"] == ("layer",) and mean.provenance["repeats"] == count


def test_nan_values_are_omitted_and_one_repeat_has_no_error() -> None:
    rows = np.array([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan], [8.0, 7.0, np.nan]])
    mean = average([found({"nll": row}) for row in rows])
    np.testing.assert_allclose(mean.values["nll"], [4.0, 6.0, np.nan])
    np.testing.assert_allclose(mean.values["nll_error"], [stats.sem(rows[:, 0]), stats.sem([5.0, 7.0]), np.nan])
    assert np.isnan(standard_error(rows[:1])).all()


def test_a_larger_error_of_the_instrument_is_kept() -> None:
    repeats = [found({"top1": [x, x], "top1_error": [5.0, 0.1]}) for x in (1.0, 3.0)]  # over repeats: 1
    mean = average(repeats)
    np.testing.assert_allclose(mean.values["top1_error"], [5.0, 1.0])
    assert set(mean.values) == {"top1", "top1_error"}


def test_equal_values_are_unchanged() -> None:
    repeats = [found({"edges": [0, 1], "name": ["a", "b"], "right": [True, x > 1], "x": x}) for x in (1.0, 2.0)]
    mean = average(repeats)
    assert mean.values["edges"].dtype.kind == "i" and mean.values["name"].tolist() == ["a", "b"]
    assert mean.values["right"].tolist() == [1.0, 0.5] and "edges_error" not in mean.values


def test_a_copy_is_not_a_repeat() -> None:
    one = found({"nll": np.array([1.0, np.nan])})
    assert average([one, replace(one, provenance={"time": "later"})]) is one
    assert len(distinct([one, replace(one, subject="another")])) == 2


def test_different_provenance_entries_become_lists() -> None:
    repeats = [found({"x": float(i)}, data=f"part {i}", device="cpu", settings={"seed": i}) for i in range(2)]
    mean = average(repeats)
    assert mean.provenance == {"data": ["part 0", "part 1"], "device": "cpu", "repeats": 2}
    assert mean.settings == {"seed": [0, 1]}


def test_errors_belong_to_their_values() -> None:
    values = {
        "accuracy": [1.0], "standard_error": [0.1], "drop": [0.5], "drop_error": [0.1], "clean_accuracy": 0.9,
        "clean_error": 0.1, "nll_change": [2.0], "nll_standard_error": [0.1], "test_nll": 1.0, "test_error": 0.3,
        "test_error_interval": [0.2, 0.4],
    }  # fmt: skip
    assert found(values).errors == {
        "accuracy": "standard_error",
        "drop": "drop_error",
        "clean_accuracy": "clean_error",
        "nll_change": "nll_standard_error",
    }
    assert auxiliary(found(values)) == {
        "standard_error", "drop_error", "clean_error", "nll_standard_error", "test_error_interval"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (found({"x": [2.0, 3.0]}), r"shape of x: \(1,\) and \(2,\)"),
        (found({"y": [2.0]}), "x, y only in some"),
        (found({"x": [2.0]}, "b"), "are not repeats"),
        (found({"x": [2.0]}, settings={"norm": "l2"}), "differ in norm: None and 'l2'"),
    ],
)
def test_measurements_that_are_not_repeats_raise(other: Measurement, message: str) -> None:
    with pytest.raises(VitlabError, match=message):
        average([found({"x": [1.0]}), other])


def test_an_empty_list_has_no_average() -> None:
    with pytest.raises(VitlabError, match="at least one"):
        average([])


def test_equal_parts_are_still_parts() -> None:
    """Three parts of 16 images each can have the same accuracy: dropping one would count the other images twice."""
    parts = [found({"x": x}, data=f"d {i}", part=[i, 3]) for i, x in enumerate((0.5, 0.5, 0.8))]
    assert len(distinct(parts)) == 3
    assert float(average(parts).values["x"]) == pytest.approx(0.6)


def test_measurements_of_different_weights_are_not_repeats() -> None:
    two = [found({"x": float(i)}, model={"weights": f"digest{i}"}) for i in range(2)]
    with pytest.raises(VitlabError, match="weights digest0 and digest1; average those of one model"):
        average(two)


def test_seeds_are_averaged_and_the_parts_of_each_pooled_first() -> None:
    about = [({"seed": s}, s, p) for s in (0, 1, 2) for p in (1, 2)]
    repeats = [
        found({"x": 10.0 * s + p}, settings=seed, data=f"d {p}", part=[p, 2], images=(10, 30)[p - 1])
        for seed, s, p in about
    ]
    mean = average(repeats)
    of_seed = [10.0 * s + 1.75 for s in (0, 1, 2)]  # (1 · 10 + 2 · 30) / 40
    assert float(mean.values["x"]) == pytest.approx(np.mean(of_seed))
    assert float(mean.values["x_error"]) == pytest.approx(stats.sem(of_seed))
    assert average(repeats[:2]).provenance["images"] == 40


def of(which: str, value: float, count: int, **notes: Any) -> Measurement:
    return found({"x": value}, data=f"scenes test[{which}] hash{value}", images=count, **notes)


def test_images_are_not_counted_twice() -> None:
    """All 40 images at once and the same in two parts, and more images of the set, are not parts of one run."""
    parts = [of(f"40 of 100, evenly spaced, part {i} of 2", float(i), 20, part=[i, 2]) for i in (1, 2)]
    assert average(parts).provenance["images"] == 40
    for other in (of("40 of 100, evenly spaced", 1.5, 40), of("all 100", 1.5, 100)):
        mean = average([*parts, other])
        assert float(mean.values["x"]) == pytest.approx(1.5)
        assert mean.provenance["images"] == 40, "two runs, not 80 or 140 images"
    changed = [of("all 40", value, 40) for value in (1.0, 2.0, 3.0)]  # files were replaced between the measurements
    mean = average(changed)
    assert mean.provenance["images"] == 40
    np.testing.assert_allclose(mean.values["x_error"], stats.sem([1.0, 2.0, 3.0]))


def test_measurements_with_other_preprocessing_are_not_repeats() -> None:
    two = [of("all 40", value, 40, preprocessing={"crop": crop, "source": "x"}) for value, crop in ((1, 0.9), (2, 1.0))]
    with pytest.raises(VitlabError, match="differ in preprocessing crop: 0.9 and 1.0"):
        average(two)
