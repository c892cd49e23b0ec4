"""The numbers that HDVW's claims compare, against closed forms and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.synthetic import entry, layered, measured
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.how_vits_work import _feature_maps as feature_maps
from vitlab.experiments.how_vits_work import _readings as readings
from vitlab.experiments.how_vits_work._effects import Check, Effect, Reading, more, own, slope, trend, verdicts


def test_rises_of_a_paraboloid() -> None:
    """On x² + y² over [-2, 2]² the 8 nearest points are 1 or 2 above the centre, the 16 boundary points 4 to 8."""
    x = np.arange(-2.0, 3.0)
    bowl = x[:, None] ** 2 + x**2
    found = measured("loss_landscape", total=bowl, nll=2 * bowl)
    boundary = [a * a + b * b for a in x for b in x if max(abs(a), abs(b)) == 2]
    assert readings.NEAR_RISE.value(found) == pytest.approx(1.5)
    assert readings.RISE.value(found) == pytest.approx(sum(boundary) / 16)
    assert readings.NLL_RISE.value(found) == pytest.approx(2 * sum(boundary) / 16)
    assert readings.ROUGHNESS.value(found) < math.log(1e-12)
    assert readings.ROUGHNESS.value(measured("loss_landscape", total=bowl**2)) > math.log(0.01)


def test_turning_is_zero_on_a_straight_line_only() -> None:
    assert readings.TURNING.value(measured("trajectory", angle=[0.0, 0.1, 0.2, np.nan])) == pytest.approx(0)
    assert readings.TURNING.value(measured("trajectory", angle=[0.0, 0.3, 0.2, np.nan])) == pytest.approx(0.4)
    assert math.isnan(readings.TURNING.value(measured("trajectory", angle=[0.0, 0.3, np.nan])))


def test_amplitude_of_early_and_late_units() -> None:
    names = [f"blocks.{i} {unit}" for i in range(8) for unit in ("MSA", "MLP")]
    found = layered("feature_fourier", {"step": names}, change=(("step",), np.arange(16.0)))
    assert feature_maps.amplitude("MSA", "early").value(found) == pytest.approx(1.0)  # 0 and 2
    assert feature_maps.amplitude("MSA", "late").value(found) == pytest.approx(9.0)  # 4, 6, …, 14
    assert feature_maps.amplitude("MLP").value(found) == pytest.approx(8.0)
    assert math.isnan(feature_maps.amplitude("Conv").value(found))


def test_variance_by_stage() -> None:
    names = [f"layers.{stage}.blocks.{i} MSA" for stage in range(4) for i in range(2)]
    found = layered("feature_variance", {"step": names}, change=(("step",), np.arange(8.0)), variance=((), 2.0))
    assert feature_maps.variance("MSA").value(found) == pytest.approx(3.5 / 2)
    assert feature_maps.variance("MSA", without=3).value(found) == pytest.approx(np.mean([0, 1, 2, 3, 6, 7]) / 2)
    assert feature_maps.variance("MSA", stages=(3,), last=True).value(found) == pytest.approx(5 / 2)
    convs = {"step": [name.replace("MSA", "Conv") for name in names]}
    found = layered("feature_variance", convs, change=(("step",), np.arange(8.0)), variance=((), 2.0))
    assert feature_maps.variance("Conv").value(found) == pytest.approx(
        np.mean([0, 1, 3, 5, 7]) / 2
    )  # 2, 4, 6 subsample


def test_peaks_and_trend_of_variance() -> None:
    places = [
        "stages.0.0 out",
        "stages.0.1 out",
        "stages.0.2 out",
        "stages.1.0 out",
        "stages.1.1 out",
        "stages.2.0 out",
    ]
    variance = np.exp([0.0, 2.0, 4.0, 1.0, 0.0, 9.0])  # the last stage has one block and no inside
    found = layered("feature_variance", {"place": places}, variance=(("place",), variance))
    assert feature_maps.stage_peak().value(found) == pytest.approx(((4 - 1) + (0 - 1)) / 2)
    doubling = layered("feature_variance", {"place": places}, variance=(("place",), 2.0 ** np.arange(6)))
    assert feature_maps.depth_trend().value(doubling) == pytest.approx(math.log(2))


def test_stage_drop_compares_neighbours_only() -> None:
    names = ["stages.0.0", "stages.0.1", "stages.1.0", "stages.1.1"]
    cka = np.array([[1, 0.9, 0.3, 0.2], [0.9, 1, 0.5, 0.3], [0.3, 0.5, 1, 0.8], [0.2, 0.3, 0.8, 1]])
    found = layered("representation_cka", {"layer": names, "other_layer": names}, cka=(("layer", "other_layer"), cka))
    assert feature_maps.STAGE_DROP.value(found) == pytest.approx((0.9 + 0.8) / 2 - 0.5)
    assert feature_maps.MEAN_SIMILARITY.value(found) == pytest.approx(np.mean([0.9, 0.3, 0.2, 0.5, 0.3, 0.8]))


def test_lesions_at_the_ends_of_stages() -> None:
    names = [f"s.{i} {unit}" for i in range(4) for unit in ("MSA", "MLP")]
    change = -np.array([1, 50, 2, 50, 4, 50, 8, 50]) / 100
    found = layered("lesion", {"unit": names}, change=(("unit",), change), stage=(("unit",), [0, 0, 0, 0, 1, 1, 1, 1]))
    assert feature_maps.lesion("MSA", "end", "start").value(found) == pytest.approx((2 + 8) / 2 - (1 + 4) / 2)
    assert feature_maps.lesion("MSA", "last", "first").value(found) == pytest.approx((4 + 8) / 2 - (1 + 2) / 2)
    assert math.isnan(feature_maps.lesion("Conv", "end", "start").value(found))


def test_drops_under_noise_are_means_over_a_range_without_frequency_0() -> None:
    axes = {"frequency": (0.0, 0.1, 0.3, 0.5, 0.8, 1.0)}
    found = layered("frequency_noise", axes, drop=(("frequency",), [0.9, 0.02, 0.04, 0.5, 0.1, 0.3]))
    assert readings.LOW_NOISE_DROP.value(found) == pytest.approx(3)
    assert readings.HIGH_NOISE_DROP.value(found) == pytest.approx(20)


def test_slopes_are_those_of_least_squares() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 4))
    expected = np.polyfit(x, y, 1)[0]
    any_reading = Reading("any", (), float)
    assert trend(any_reading, dict(zip("abcd", x, strict=True))).combine(list(y)) == pytest.approx(expected)
    assert slope(any_reading, any_reading, list("abcd")).combine([*x, *y]) == pytest.approx(expected)
    assert math.isnan(slope(any_reading, any_reading, ["a", "b"]).combine([1.0, 1.0, 2.0, 3.0]))


def test_effects_are_paired_by_seed_and_part() -> None:
    """Runs that only one arm has are omitted."""
    nll = {("a", 0): 1.0, ("a", 1): 2.0, ("b", 1): 5.0, ("b", 2): 9.0}
    results = Results([entry(arm, measured("train_fit", train_nll=value), seed) for (arm, seed), value in nll.items()])
    assert more(readings.NLL_TRAIN, "b", "a")(results) == [3.0]
    assert own(readings.NLL_TRAIN, "a", -1)(results) == [-1.0, -2.0]


def test_runs_without_a_finite_effect_are_counted() -> None:
    values = Results(
        [entry("a", measured("hessian_spectrum", positive_average=x), seed) for seed, x in enumerate((1, 0))]
    )
    check = Check(Claim("c", "a claim"), own(readings.LOG_APE, "a"))
    (verdict,) = verdicts([check], values)
    assert verdict.our_value == 0.0 and "; 1 run(s) without a finite effect" in verdict.why
    assert verdicts([Check(check.claim, Effect(((readings.LOG_APE, "b"),), sum))], values)[0].outcome == "not run"
