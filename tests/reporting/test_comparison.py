"""Differences: cautious beside Welch's interval of scipy and where noise is shared, silent where it is unknown."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vitlab.core.measurement import Measurement
from vitlab.core.old_files import errors_by_name
from vitlab.core.pooling import derive
from vitlab.core.repeats import average
from vitlab.reporting.comparison import MOST, compare
from vitlab.reporting.comparison import numbers as numbers_of_one
from vitlab.reporting.differences import Difference, Number, quantile
from vitlab.reporting.drawing import draw
from vitlab.reporting.headline import describe_number
from vitlab.reporting.readings import reading
from vitlab.reporting.sections import Section, label_models, sort


def found(subject: str = "a", dims: dict[str, tuple[str, ...]] | None = None, **values: Any) -> Measurement:
    arrays = {name: np.asarray(value) for name, value in values.items()}
    guessed = {name: ("layer", "head")[: array.ndim] for name, array in arrays.items()}
    axes = {**guessed, **(dims or {})}
    return Measurement("kind", subject, arrays, axes, errors=errors_by_name(axes))


def numbers(repeats: list[Measurement]) -> dict[str, Number]:
    return numbers_of_one(average(repeats))


def section(**models: list[Measurement]) -> Section:
    return Section("a_kind", "", models)


@settings(deadline=None, max_examples=25)
@given(st.integers(3, 6), st.integers(3, 6), st.integers(0, 2**31))
def test_the_interval_is_that_of_both_and_no_narrower_than_welchs(first: int, second: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    a, b = generator.normal(size=first), 0.5 + 2 * generator.normal(size=second)
    (difference,) = compare(section(a=[found(x=v) for v in a], b=[found(x=v) for v in b]))
    welch = stats.ttest_ind(b, a, equal_var=False)
    assert difference.value == pytest.approx(b.mean() - a.mean())
    halves = [stats.t.ppf(0.975, len(x) - 1) * stats.sem(x) for x in (a, b)]
    assert difference.half_width == pytest.approx(math.hypot(*halves), rel=1e-5)
    exact = welch.confidence_interval(0.95)
    assert difference.half_width >= (exact.high - exact.low) / 2 * (1 - 1e-5)
    if difference.strength > 1:
        assert welch.pvalue < 0.05


def test_verdicts() -> None:
    def verdict(value: float, error: float) -> str:
        return Difference("k", "x", "b", Number(0.0, error), Number(value, error)).verdict

    edge = 1.959964 * math.sqrt(2)
    assert verdict(edge + 0.001, 1.0) == "larger than the noise" == verdict(-edge - 0.001, 1.0)
    assert verdict(edge - 0.001, 1.0) == "within the noise"
    assert verdict(5.0, math.nan) == verdict(5.0, 0.0) == "noise not known"


def test_errors_intervals_and_repeats_enter_the_error() -> None:
    z = quantile(math.inf)
    known = found(
        a=[1.0, 3.0], a_error=[0.1, 0.3], b=2.0, b_interval=[1.0, 4.0], c=5.0, dims={"b_interval": ("bound",)}
    )
    table = numbers([known])
    assert table["a"] == Number(2.0, pytest.approx(0.2)) and table["b"] == Number(2.0, pytest.approx(1.5 / z))
    assert math.isnan(table["c"].error)
    half = numbers([found(x=[2.0, 4.0], x_interval=[0.5, 1.5], y=1.0, y_interval=np.inf)])
    assert half["x"].error == pytest.approx(1.0 / z) and math.isnan(half["y"].error)
    wide = numbers([found(x=v, x_error=0.01) for v in (1.0, 2.0, 3.0)])["x"]
    assert (wide.error, wide.freedom) == (pytest.approx(1 / math.sqrt(3)), 2)
    own = numbers([found(x=v, x_error=20.0) for v in (1.0, 3.0)])["x"]
    assert (own.error, own.freedom) == (20.0, math.inf)


def test_two_repeats_have_no_interval() -> None:
    """Student's interval of 50 % and 80 % would be 65 ± 191 %."""
    for own in ({}, {"x_error": 0.01}):
        (difference,) = compare(section(**{who: [found(x=v, **own) for v in (0.5, 0.8)] for who in "ab"}))
        assert math.isnan(difference.number.half_width) and difference.verdict == "noise not known"
        drawn = average([found(x=v, **own) for v in (0.5, 0.8)], student=True)
        assert np.isnan(drawn.values[drawn.errors["x"]])


@pytest.mark.parametrize(("right", "rule"), [(1, ("each", "correct")), (0, ("drop", "clean", "correct"))])
def test_outcomes_without_spread_have_an_exact_bound(right: int, rule: tuple[str, ...]) -> None:
    rules = {"clean": ("concatenate", "image"), "correct": ("concatenate", "image"), "share": ("mean_of", *rule)}
    rules["share_error"] = ("error_of", *rule)
    values = derive({"clean": np.full(32, right > 0), "correct": np.full(32, right > 0)}, rules)
    dims = {name: ("image",)[: value.ndim] for name, value in values.items()}
    one = Measurement("k", "a", values, dims, {}, {}, {"data": "d"}, {"share": "share_error"}, rules)
    assert float(values["share_error"]) == 0
    (share,) = numbers_of_one(average([one], student=True)).values()
    assert share.value == right and share.half_width == pytest.approx(
        stats.binomtest(0, 32).proportion_ci(method="exact").high
    )


def test_the_mean_over_layers_is_taken_in_each_repeat() -> None:
    """Layers that move in opposite ways cancel: their mean is surer than each of them."""
    table = numbers([found(x=[1.0, 3.0]), found(x=[3.0, 1.2]), found(x=[2.0, 2.1])])
    assert table["x"].value == pytest.approx(2.05)
    assert table["x"].error == pytest.approx(stats.sem([2.0, 2.1, 2.05]))


def test_key_numbers_of_each_measurement() -> None:
    many = {f"value{i}": np.zeros(3) for i in range(9)}
    odd = {"bin_count": 1.0, "edges": [0.0], "p15": 1.0, "words": ["a"], "block": 1.0, "number": 3, "gap": np.nan}
    table = numbers([found(**many, **odd, single=1.0, sure=[1.0], sure_error=[0.1])])
    assert list(table) == ["sure", "single", "value0", "value1", "value2", "value3"] and len(table) == MOST


def test_the_attended_distance_comes_first() -> None:
    both = Measurement("attention_distance", "a", {"distance": np.ones(4), "attended": np.ones(4)},
                       dict.fromkeys(("distance", "attended"), ("layer",)))  # fmt: skip
    assert list(numbers_of_one(both)) == ["attended", "distance"]


def test_training_is_compared_at_its_last_epoch() -> None:
    curve = found(top1=[10.0, 20.0, 60.0], dims={"top1": ("epoch",)})
    assert numbers([curve])["top1"].value == 60.0


def test_common_values_are_compared_with_the_baseline() -> None:
    models = {"a": [found(x=1.0, y=1.0)], "b": [found(y=2.0, z=1.0)], "c": [found(x=0.0)]}
    made = compare(section(**models))
    assert [(each.label, each.name, each.value) for each in made] == [("b", "y", 1.0), ("c", "x", -1.0)]
    assert compare(Section("k", "", models, has_baseline=False)) == []


def test_quantiles_are_scipys() -> None:
    assert quantile(math.inf) == pytest.approx(stats.norm.ppf(0.975), rel=1e-4)
    assert quantile(7.9) == pytest.approx(stats.t.ppf(0.975, 7), rel=1e-6)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=4),
    st.lists(st.floats(-3, 3), min_size=1, max_size=4),
    st.sampled_from([None, 0.0, 0.3, 2.0]),
)
def test_titles_and_tables_never_disagree(first: list[float], second: list[float], own: float | None) -> None:
    doubt = {} if own is None else {"x_error": own}
    given = [found(who, x=x, **doubt) for who, values in (("a", first), ("b", second)) for x in values]
    (one,) = sort(given, label_models(given))
    (difference,) = compare(one)
    sentence = describe_number("x", one.averaged(), reading("x")).sentence
    if "(the same)" not in sentence:
        judged = next((w for w in ("within the noise", "noise not known") if w in sentence), "larger than the noise")
        assert judged == difference.verdict


def test_an_array_whose_mean_is_stored_is_not_compared_again() -> None:
    assert set(numbers([found(accuracy=[0.2, 0.4], error=[0.8, 0.6], mean_accuracy=0.3, drop=[0.1])])) == {
        "mean_accuracy",
        "drop",
    }
    assert set(numbers([found(mean=[0.2, 0.4], overall=0.3)])) == {"overall"}
    assert set(numbers([found(eigenvalues=[[2.0, -1.0]], positive_average=2.0)])) == {"positive_average"}
    assert set(numbers([found(share=[0.25, 0.75], shape_bias=0.4)])) == {"shape_bias"}
    assert set(numbers([found(accuracy=[0.2, 0.4], mean_accuracy=np.nan)])) == {"accuracy"}


def part(subject: str, index: int, value: float, data: str = "imagenet test", **about: Any) -> Measurement:
    """Entropy by layer and head on one part of the images; the deep half has the given mean."""
    table = np.array([[5.0, 5.0], [value - 0.1, value + 0.1]])
    values = {"mean": table, "class_row": table - 0.5}
    stored = {"part": [index, 3], "data": f"{data}[{index}::3] hash{index}", "images": 16, **about}
    return Measurement("attention_entropy", subject, values, dict.fromkeys(values, ("layer", "head")), {}, {}, stored)


def test_models_on_the_same_parts_of_the_images_are_paired() -> None:
    """DeiT-Ti and DeiT-Ti + CB on three parts of 48 images: the parts differ more than the models."""
    plain, gaps = [2.1, 2.5, 1.9], [0.045, 0.086, 0.051]
    given = [part("plain", i, x) for i, x in enumerate(plain)]
    given += [part("CB", i, x + gap) for i, (x, gap) in reversed([*enumerate(zip(plain, gaps, strict=True))])]
    (one,) = sort(given, label_models(given))
    made = next(each for each in compare(one) if each.name == "mean")
    interval = stats.ttest_rel(np.add(plain, gaps), plain).confidence_interval(0.95)
    assert made.value == pytest.approx(np.mean(gaps)) and made.pairs == 3
    assert made.half_width == pytest.approx((interval.high - interval.low) / 2, rel=1e-5)
    assert made.verdict == "larger than the noise"
    assert "within" not in draw("attention_entropy", one.averaged())[0].finding
    others = [
        *given[:3],
        *(part("CB", i, x + gap, "cifar test") for i, (x, gap) in enumerate(zip(plain, gaps, strict=True))),
    ]
    (unpaired,) = sort(others, label_models(others))
    apart = next(each for each in compare(unpaired) if each.name == "mean")
    assert apart.pairs == 0 and apart.verdict == "within the noise", "other images are not paired"


def test_models_on_the_same_images_are_paired_image_by_image() -> None:
    random = np.random.default_rng(0)
    base = random.random(60) < 0.5
    better = base | (random.random(60) < 0.4)
    rules = {"correct": ("concatenate", "image"), "accuracy": ("mean_of", "each", "correct")}
    rules |= {"standard_error": ("error_of", "each", "correct")}

    def measured(subject: str, correct: np.ndarray, data: str = "d") -> Measurement:
        values = derive({"correct": correct}, rules)
        dims = {name: ("image",)[: value.ndim] for name, value in values.items()}
        errors = {"accuracy": "standard_error"}
        return Measurement("adversarial", subject, values, dims, {}, {}, {"data": data}, errors, rules)

    given = [measured("a", base), measured("b", better)]
    (made,) = compare(sort(given, label_models(given))[0])
    interval = stats.ttest_rel(better.astype(float), base.astype(float)).confidence_interval(0.95)
    assert made.pairs == 60 and made.value == pytest.approx(better.mean() - base.mean())
    assert made.half_width == pytest.approx((interval.high - interval.low) / 2, rel=1e-5)
    assert made.verdict == "larger than the noise" != replace(made, paired=math.nan).verdict
    apart = [measured("a", base), measured("b", better, "e")]
    assert compare(sort(apart, label_models(apart))[0])[0].pairs == 0
    few = base[:32] | (np.cumsum(~base[:32]) <= 4)
    given = [measured("a", base[:32]), measured("b", few)]
    (made,) = compare(sort(given, label_models(given))[0])
    assert made.value == 4 / 32 and stats.binomtest(4, 4).pvalue == 0.125
    assert made.verdict == "within the noise", "4 images gained and none lost"


@pytest.mark.parametrize("name", ["mean", "class_row"])
def test_title_and_table_give_the_same_number_and_verdict(name: str) -> None:
    given = [
        part(who, i, x + 0.01 * i * shift) for who, shift in (("a", 0), ("b", 3)) for i, x in enumerate((1, 1.2, 2))
    ]
    (one,) = sort(given, label_models(given))
    made = next(each for each in compare(one) if each.name == name)
    titles = [figure.finding for figure in draw("attention_entropy", one.averaged())]
    (title,) = [each for each in titles if ("class" in each) == (name == "class_row")]
    sentence = re.search(r": ([\d.]+) nats for a, ([\d.]+) nats for b", title)
    assert sentence and [float(each) for each in sentence.groups()] == pytest.approx(
        [made.baseline.value, made.number.value], abs=6e-3
    )
    assert ("within the noise" in title) == (made.strength <= 1)
