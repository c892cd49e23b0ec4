"""Pooling: pooled parts equal the measurement on all images, and jackknife errors equal those of loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vitlab.core.errors import VitlabError
from vitlab.core.formulas import error_of, histogram_quantile, mean_corruption_error
from vitlab.core.measurement import Measurement
from vitlab.core.pooling import GROUPS, SINGLE, derive, leave_one_out, pool, split
from vitlab.core.repeats import Combined, average
from vitlab.core.statistics import pseudo_values

RULES = {
    "right": ("concatenate", "image"),
    "clean": ("concatenate", "image"),
    "accuracy": ("mean_of", "each", "right"),
    "accuracy_error": ("error_of", "each", "right"),
    "drop": ("mean_of", "drop", "clean", "right"),
    "drop_error": ("error_of", "drop", "clean", "right"),
}


def measured(right: np.ndarray, clean: np.ndarray, **about: object) -> Measurement:
    values = derive({"right": right, "clean": clean}, RULES)
    dims = {name: ("mask",)[: value.ndim] for name, value in values.items()}
    dims |= {"right": ("mask", "image"), "clean": ("image",)}
    errors = {"accuracy": "accuracy_error", "drop": "drop_error"}
    return Measurement("occlusion", "a", values, dims, {}, {}, {"images": len(clean), **about}, errors, RULES)


def images(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.random((2, count)) < 0.4, random.random(count) < 0.8


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=4), st.integers(0, 999))
def test_unequal_parts_give_the_result_of_all_images(sizes: list[int], seed: int) -> None:
    right, clean = images(sum(sizes), seed)
    ends = np.cumsum(sizes)[:-1]
    pieces = zip(np.split(right, ends, axis=1), np.split(clean, ends), strict=True)
    parts = [measured(*piece, data=f"d {i}", part=[i, len(sizes)]) for i, piece in enumerate(pieces)]
    whole, pooled = measured(right, clean), average(parts)
    for name in ("accuracy", "drop", "right", "clean", *whole.errors.values()):
        np.testing.assert_allclose(pooled.values[name], whole.values[name], err_msg=name)


def test_a_mean_over_parts_counts_images_and_its_error_shrinks() -> None:
    parts = [
        Measurement("k", "a", {"x": np.array(x), "e": np.array(0.3)}, {"x": (), "e": ()}, errors={"x": "e"},
                    provenance={"images": n, "data": f"d {n}"})
        for x, n in ((1.0, 10), (4.0, 30))
    ]  # fmt: skip
    assert float(pool(parts).values["x"]) == pytest.approx(np.average([1, 4], weights=[10, 30]))
    assert float(pool(parts).values["e"]) == pytest.approx(0.3 / np.sqrt(2))


def test_sums_add_up_and_ratios_are_of_sums() -> None:
    rules = {**dict.fromkeys(("hsic", "own", "other"), ("sum",)), "cka": ("cka", "hsic", "own", "other")}
    dims = {"hsic": ("layer", "other_layer"), "own": ("layer",), "other": ("other_layer",)}
    random = np.random.default_rng(0)
    stored = [
        {"hsic": random.random((2, 2)), "own": 1 + random.random(2), "other": 1 + random.random(2)} for _ in "abc"
    ]
    parts = [
        Measurement("representation_cka", "a", derive(each, rules), {**dims, "cka": dims["hsic"]}, pooling=rules,
                    provenance={"data": f"d {i}", "part": [i, 3]})
        for i, each in enumerate(stored)
    ]  # fmt: skip

    def ratio(of: list[dict[str, np.ndarray]]) -> np.ndarray:
        cross, own, other = (sum(each[name] for each in of) for name in ("hsic", "own", "other"))
        return cross / np.sqrt(np.outer(own, other))

    made = average(parts)
    np.testing.assert_allclose(made.values["cka"], ratio(stored))
    without = np.array([ratio([e for j, e in enumerate(stored) if j != i]) for i in range(3)])
    jackknife = np.sqrt(2 / 3 * ((without - without.mean(0)) ** 2).sum(0))
    np.testing.assert_allclose(made.values[made.errors["cka"]], jackknife)
    assert set(made.errors) == {"cka"}, "sums have no error of their own"


def test_eigenvalues_of_all_mini_batches_have_equal_weight() -> None:
    rules = {"eigenvalues": ("concatenate", "mini_batch")}
    rules |= {name: (name, "eigenvalues") for name in ("negative_proportion", "positive_average")}
    tables = [np.array([[-1.0, 2.0], [4.0, -3.0]]), np.array([[9.0, 6.0]])]
    dims = {"eigenvalues": ("mini_batch", "rank"), "negative_proportion": (), "positive_average": ()}
    parts = [
        Measurement("hessian_spectrum", "a", derive({"eigenvalues": table}, rules), dims,
                    {"mini_batch": range(len(table))}, pooling=rules, provenance={"data": f"d {i}"})
        for i, table in enumerate(tables)
    ]  # fmt: skip
    made = average(parts)
    assert float(made.values["negative_proportion"]) == 2 / 6  # not the mean of 1/2 and 0
    assert float(made.values["positive_average"]) == (2 + 4 + 9 + 6) / 4
    assert made.values["eigenvalues"].shape == (3, 2)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 200), st.floats(0.01, 0.99), st.integers(0, 99))
def test_quantiles_of_histograms_are_exact_to_one_bin(count: int, share: float, seed: int) -> None:
    numbers = 5 * np.random.default_rng(seed).beta(2, 5, count)
    histogram = np.histogram(numbers, 100, (0, 5))[0]
    found = histogram_quantile(histogram[None], np.array([5.0]), share)[0]
    lower, higher = (np.quantile(numbers, share, method=way) for way in ("inverted_cdf", "closest_observation"))
    assert min(lower, higher) - 0.0501 <= found <= max(lower, higher) + 0.0501
    assert np.isnan(histogram_quantile(np.zeros((1, 4)), np.array([1.0]), share))


def test_groups_of_images_are_a_jackknife_over_images() -> None:
    right, clean = images(40)
    made = average([measured(right, clean, data="d")])
    assert isinstance(made, Combined) and made.over == "images" and len(made.units) == 40
    each = pseudo_values(float(made.values["drop"][1]), [float(one.values["drop"][1]) for one in made.without])
    np.testing.assert_allclose(each, clean.astype(float) - right[1])
    assert made.values["drop_error"][1] == pytest.approx(stats.sem(clean.astype(float) - right[1]))
    assert len(split(measured(*images(GROUPS + 7)))[0]) == GROUPS + 7, "few images are not grouped"
    many, rest = split(measured(*images(SINGLE + 7)))
    assert len(many) == GROUPS and sum(part.provenance["images"] for part in many) == SINGLE + 7
    for ours, expected in zip(rest, leave_one_out(many), strict=True):
        assert "right" not in ours.values and ours.values.keys() == expected.values.keys()
        np.testing.assert_allclose(ours.values["drop"], expected.values["drop"])


def test_measurements_not_made_from_images_are_not_split() -> None:
    whole = measured(*images(8))
    more = Measurement(
        "k", "a", {**whole.values, "x": np.array(1.0)}, {**whole.dims, "x": ()}, errors=whole.errors, pooling=RULES
    )
    assert len(split(whole)[0]) == 8 and split(more) == ([], ())
    assert average([more]) is more


def test_corruption_errors_omit_values_without_weight() -> None:
    right = np.random.default_rng(0).random((3, 5, 8)) < 0.5
    baseline, weights = np.array([0.8, 0.5, np.nan]), np.array([0.5, 0.5, 0.0])
    expected = np.mean([(1 - right[c].mean()) / baseline[c] for c in (0, 1)])
    assert mean_corruption_error(right, baseline, weights).mean() == pytest.approx(expected)
    assert np.isnan(mean_corruption_error(right, baseline, np.full(3, np.nan))).all()
    assert np.isnan(error_of("each", np.array([1.0])))


def test_rules_that_are_not_known_are_one_line() -> None:
    with pytest.raises(VitlabError, match="median"):
        derive({"x": np.array(1.0)}, {"y": ("median", "x")})
    rule = {"x": ("concatenate", "image")}
    wrong = Measurement("k", "a", {"x": np.zeros(2)}, {"x": ("layer",)}, pooling=rule)
    with pytest.raises(VitlabError, match="pooled along 'image', which is not one of its axes"):
        pool([wrong, wrong])
