"""Figures of training and of the loss: they hold the measurement's numbers, and say the right thing about them."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from scipy import stats

from vitlab.core.measurement import Measurement
from vitlab.core.old_files import errors_by_name, pooling_by_kind
from vitlab.core.repeats import average
from vitlab.core.statistics import proportion_interval
from vitlab.reporting.drawing import Figure, dash, draw


def training(subject: str = "a", epochs: int = 3, top: float = 50.0, **more: np.ndarray) -> Measurement:
    ramp = np.linspace(0, 1, epochs)
    values = {"train_loss": 3 - ramp, "loss": 2 - ramp, "top1": top * (ramp + 1) / 2, **more}
    dims = dict.fromkeys(values, ("epoch",))
    axes = {"epoch": tuple(range(1, epochs + 1))}
    return Measurement("training", subject, values, dims, axes, errors=errors_by_name(dims))


def train_fit(subject: str = "a", nll: float = 2.0, error: float = 0.3) -> Measurement:
    values = {"train_nll": np.array(nll), "train_nll_interval": np.array([nll - 0.1, nll + 0.1])}
    values |= {"test_error": np.array(error), "test_error_interval": np.array([error - 0.01, error + 0.03])}
    dims = {name: ("bound",)[: value.ndim] for name, value in values.items()}
    return Measurement("train_fit", subject, values, dims, {"bound": ("low", "high")})


def calibration(subject: str = "a", shift: float = -0.1) -> Measurement:
    """Accuracy lies by `shift` from confidence; one bin of four is empty."""
    confidence = np.array([np.nan, 0.4, 0.6, 0.9])
    count = np.array([0, 10, 30, 60])
    values = {"bin_confidence": confidence, "bin_accuracy": confidence + shift, "bin_count": count}
    values |= {"edges": np.linspace(0, 1, 5), "ece": np.array(abs(shift)), "signed_ece": np.array(-shift)}
    dims = {name: ("bin",)[: value.ndim] for name, value in values.items()} | {"edges": ("edge",)}
    return Measurement("calibration", subject, values, dims)


def hessian_spectrum(subject: str = "a", eigenvalues: Any = ((-1.0, 2.0), (3.0, 4.0)), **more: Any) -> Measurement:
    table = np.asarray(eigenvalues, dtype=float)
    positive = table[table > 0]
    values = {"eigenvalues": table, "negative_proportion": np.array((table < 0).mean())}
    values |= {"positive_average": np.array(positive.mean() if positive.size else np.nan), **more}
    dims = {name: ("mini_batch", "rank")[: np.ndim(value)] for name, value in values.items()}
    rules = pooling_by_kind("hessian_spectrum", values)
    return average([Measurement("hessian_spectrum", subject, values, dims, {}, {}, {}, errors_by_name(dims), rules)])


def loss_landscape(subject: str = "a", steep: float = 1.0, points: int = 5) -> Measurement:
    """NLL = steep (α² + 2 β²) + 1, ℓ2 = ½ (α² + β²) + 7."""
    steps = np.linspace(-1, 1, points)
    alpha, beta = np.meshgrid(steps, steps, indexing="ij")
    nll, l2 = steep * (alpha**2 + 2 * beta**2) + 1, (alpha**2 + beta**2) / 2 + 7
    values = {"nll": nll, "l2": l2, "total": nll + l2}
    axes = {"first": tuple(steps.tolist()), "second": tuple(steps.tolist())}
    return Measurement("loss_landscape", subject, values, dict.fromkeys(values, ("first", "second")), axes)


def trajectory(subject: str = "a", widest: float = 60.0) -> Measurement:
    values = {"radius": np.array([1.0, 0.5, 0.0]), "angle": np.radians([0.0, widest, np.nan])}
    return Measurement(
        "trajectory", subject, values, dict.fromkeys(values, ("snapshot",)), {"snapshot": ("x", "y", "z")}
    )


MAKERS = {
    maker.__name__: maker for maker in (training, train_fit, calibration, hessian_spectrum, loss_landscape, trajectory)
}


def traces(figure: Figure) -> list[dict[str, Any]]:
    """The traces as a browser reads them, with numbers in plain lists."""

    def plainly(thing: Any) -> Any:
        if isinstance(thing, dict) and "bdata" in thing:
            flat = np.frombuffer(base64.b64decode(thing["bdata"]), thing["dtype"])
            return flat.reshape([int(side) for side in str(thing.get("shape", len(flat))).split(",")]).tolist()
        return {key: plainly(value) for key, value in thing.items()} if isinstance(thing, dict) else thing

    return [plainly(trace) for trace in json.loads(figure.plot.to_json())["data"]]


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("models", [1, 2, 6])
def test_every_figure_has_a_finding_and_is_json(kind: str, models: int) -> None:
    for figure in draw(kind, [MAKERS[kind](f"model {i}") for i in range(models)]):
        json.loads(figure.plot.to_json(), parse_constant=pytest.fail)
        assert figure.finding and "nan" not in figure.finding
        assert len(traces(figure)) >= models


@pytest.mark.parametrize("kind", MAKERS)
def test_nan_values_leave_a_gap(kind: str) -> None:
    whole = MAKERS[kind]()
    keep = ("bin_count", "edges")
    nothing = {n: v if n in keep else np.full(np.shape(v), np.nan) for n, v in whole.values.items()}
    empty = Measurement(kind, "b", nothing, whole.dims, whole.axes)
    for measurements in ([empty], [whole, empty], [empty, whole]):
        for figure in draw(kind, measurements):
            json.loads(figure.plot.to_json(), parse_constant=pytest.fail)
            assert "nan" not in figure.finding


def test_training_curves_show_losses_and_accuracy_up_to_the_last_epoch() -> None:
    one, other = training("a", 3), training("b", 5, top=60.0)
    (figure,) = draw("training", [one, other])
    drawn = {(trace["name"], trace.get("yaxis", "y")): trace for trace in traces(figure)}
    np.testing.assert_allclose(drawn["a, training", "y"]["y"], one.values["train_loss"])
    np.testing.assert_allclose(drawn["a, test", "y"]["y"], one.values["loss"])
    np.testing.assert_allclose(drawn["b", "y2"]["y"], other.values["top1"])
    dashes = {who: {drawn[key]["line"]["dash"] for key in drawn if key[0].startswith(who)} for who in "ab"}
    assert dashes == {"a": {dash(0)}, "b": {dash(1)}}, "a dash is a model, in both panels"
    assert drawn["a, training", "y"]["mode"] == "lines" and "markers" in drawn["a, test", "y"]["mode"]
    assert drawn["b", "y2"]["x"] == [1, 2, 3, 4, 5]
    assert "10.0 points higher" in figure.finding
    assert "10.0 points lower" in draw("training", [other, one])[0].finding


def test_the_learning_rate_has_its_own_figure_if_stored() -> None:
    rate = np.array([0.001, 0.002, 0.0])
    _, second = draw("training", [training("a", lr=rate), training("b")])
    (trace,) = traces(second)
    assert trace["y"] == rate.tolist() and "0.00200 for a, not known for b" in second.finding


def test_training_draws_top_5_as_figure_s11_if_stored() -> None:
    five = np.array([40.0, 70.0, 80.0])
    (figure,) = draw("training", [training("a", 3, top5=five), training("b", 3)])
    assert [axis.title.text for axis in figure.plot.select_yaxes()] == [
        *("loss, nats", "top-1 accuracy, %", "top-5 accuracy, %")
    ]
    (drawn,) = [trace for trace in traces(figure) if trace.get("yaxis") == "y3"]
    np.testing.assert_allclose(drawn["y"], five)
    assert drawn["name"] == "a"
    assert len(list(draw("training", [training("a", 3)])[0].plot.select_yaxes())) == 2


def test_training_without_accuracy_reports_the_loss() -> None:
    values = {"train_loss": np.array([3.0, 2.5])}
    (figure,) = draw("training", [Measurement("training", "a", values, {"train_loss": ("epoch",)})])
    assert figure.finding == "Training loss after the last epoch: 2.50 nats, noise not known"


def test_train_fit_is_a_point_between_its_intervals() -> None:
    (figure,) = draw("train_fit", [train_fit("ResNet"), train_fit("ViT", 2.5, 0.4)])
    first, second = traces(figure)
    assert (first["x"], first["y"]) == ([2.0], [30.0]) and (second["x"], second["y"]) == ([2.5], [40.0])
    np.testing.assert_allclose(first["error_x"]["array"] + first["error_x"]["arrayminus"], [0.1, 0.1])
    np.testing.assert_allclose(first["error_y"]["array"] + first["error_y"]["arrayminus"], [3, 1])
    assert "2.50 nats for ViT (0.50 higher)" in figure.finding and "(10.0 points higher)" in figure.finding
    (turned,) = draw("train_fit", [train_fit("ViT", 2.5, 0.4), train_fit("ResNet")])
    assert "(0.50 lower)" in turned.finding and "(10.0 points lower)" in turned.finding
    assert "within the noise" in draw("train_fit", [train_fit("a"), train_fit("b", 2.05)])[0].finding


@pytest.mark.parametrize(
    ("shift", "side"), [(-0.1, "overconfident by 10.0"), (0.1, "underconfident by 10.0"), (0.0, "neither")]
)
def test_calibration_names_overconfidence_or_underconfidence(shift: float, side: str) -> None:
    one = calibration("a", shift)
    (figure,) = draw("calibration", [one])
    diagonal, reliability, spread = traces(figure)
    assert diagonal["x"] == diagonal["y"]
    np.testing.assert_allclose(reliability["x"], [40, 60, 90])
    np.testing.assert_allclose(reliability["y"], 100 * (np.array([0.4, 0.6, 0.9]) + shift))
    np.testing.assert_allclose(spread["x"], [12.5, 37.5, 62.5, 87.5])
    np.testing.assert_allclose(spread["y"], [0, 10, 30, 60])
    _, low, high = proportion_interval(round(10 * (0.4 + shift)), 10)
    assert reliability["error_y"]["array"][0] == pytest.approx(100 * (high - 0.4 - shift))
    assert reliability["error_y"]["arrayminus"][0] == pytest.approx(100 * (0.4 + shift - low))
    assert side in figure.finding


def test_the_sides_of_the_spectrum_add_up_to_nep_and_the_rest() -> None:
    random = np.random.default_rng(0)
    tables = [random.normal(0.5, 2.0, (8, 5)), random.normal(5.0, 1.0, (6, 3))]
    spectrum, _ = draw("hessian_spectrum", [hessian_spectrum(f"{i}", table) for i, table in enumerate(tables)])
    for i, table in enumerate(tables):
        left, right = (trace for trace in traces(spectrum) if trace["name"] == f"{i}")
        assert sum(left["y"]) == pytest.approx(100 * (table < 0).mean())
        assert sum(right["y"]) == pytest.approx(100 * (table >= 0).mean())
        low, high = spectrum_range(right["x"])
        inside = np.abs(table[table >= 0])
        assert low <= inside.min() and inside.max() <= high


def spectrum_range(middles: list[float]) -> tuple[float, float]:
    """The outer edges of the bins, which lie halfway to the empty ones at the ends, on a logarithmic scale."""
    return float(np.sqrt(middles[0] * middles[1])), float(np.sqrt(middles[-1] * middles[-2]))


def test_each_eigenvalue_is_counted_in_its_own_bin() -> None:
    """Bins that all models share, so that two models' outlines compare."""
    one, other = (
        hessian_spectrum("a", [[-4.0, 1.0], [100.0, 100.0]]),
        hessian_spectrum("b", [[10.0, 10.0], [10.0, 1.0]]),
    )
    spectrum, _ = draw("hessian_spectrum", [one, other])
    right = {trace["name"]: trace for trace in traces(spectrum) if trace["xaxis"] == "x2"}
    assert right["a"]["x"] == right["b"]["x"]
    middles = np.array(right["a"]["x"])
    for name, values in {"a": [1.0, 100.0, 100.0], "b": [10.0, 10.0, 10.0, 1.0]}.items():
        nearest = [int(np.abs(np.log(middles / value)).argmin()) for value in values]
        expected = np.bincount(nearest, minlength=len(middles)) * 25.0
        np.testing.assert_allclose(right[name]["y"], expected)
    axis = spectrum.plot.layout.xaxis
    assert axis.autorange == "reversed" and all(text.startswith("−") for text in axis.ticktext)


def test_convexity_and_sharpness_in_words_and_bars() -> None:
    flat = hessian_spectrum(
        "flat", [[-1.0, 1.0], [1.0, 1.0], [-1.0, 1.0], [1.0, 1.0]], positive_average_error=np.array(0.5)
    )
    sharp = hessian_spectrum("sharp", [[9.0, 9.0]] * 4)
    spectrum, bars = draw("hessian_spectrum", [flat, sharp])
    assert "25.0 points lower" in spectrum.finding and "8.00 higher" in bars.finding
    turned, turned_bars = draw("hessian_spectrum", [sharp, flat])
    assert "25.0 points higher" in turned.finding and "8.00 lower" in turned_bars.finding
    nep, ape, *_ = traces(bars)
    assert nep["y"] == [25.0] and ape["y"] == [1.0]
    assert ape["error_y"]["array"] == [pytest.approx(1.96 * 0.5)]
    assert nep["error_y"]["array"] == [pytest.approx(stats.t.ppf(0.975, 3) * stats.sem([50, 0, 50, 0]))]


def test_a_convex_loss_has_an_empty_left_side() -> None:
    spectrum, _ = draw("hessian_spectrum", [hessian_spectrum("a", [[1.0, 2.0]])])
    assert [note.text for note in spectrum.plot.layout.annotations].count("none") == 1
    assert sum(traces(spectrum)[0]["y"]) == 0


def test_surface_contour_and_sections_show_the_landscape() -> None:
    one, steep = loss_landscape("a"), loss_landscape("b", 3.0)
    contour, surface, cuts = draw("loss_landscape", [one, steep])
    first = traces(surface)[0]
    np.testing.assert_allclose(first["z"], one.values["total"])
    assert first["x"] == first["y"] == list(one.axes["first"])
    np.testing.assert_allclose(traces(contour)[1]["z"], steep.values["total"] - 8)
    along_first, along_second = traces(cuts)[:2]
    np.testing.assert_allclose(along_first["y"], np.linspace(-1, 1, 5) ** 2 + 1)
    np.testing.assert_allclose(along_second["y"], 2 * np.linspace(-1, 1, 5) ** 2 + 1)


def test_steepness_is_the_rise_to_the_edge() -> None:
    contour, surface, _ = draw("loss_landscape", [loss_landscape("a"), loss_landscape("b", 3.0)])
    assert "higher)" in contour.finding
    assert "lower)" in draw("loss_landscape", [loss_landscape("b", 3.0), loss_landscape("a")])[0].finding
    border = [(a, b) for a in np.linspace(-1, 1, 5) for b in np.linspace(-1, 1, 5) if max(abs(a), abs(b)) == 1]
    l2, nll = (
        np.mean([f(a, b) for a, b in border])
        for f in (lambda a, b: (a * a + b * b) / 2, lambda a, b: a * a + 2 * b * b)
    )
    assert f"{100 * l2 / (l2 + nll):.1f} % for a" in surface.finding


def test_scenes_cover_the_same_height() -> None:
    plot = draw("loss_landscape", [loss_landscape("a"), loss_landscape("b", 3.0)])[1].plot
    low, high = (np.ptp(scene.zaxis.range) for scene in (plot.layout.scene, plot.layout.scene2))
    assert low == pytest.approx(high)


def test_a_fine_grid_is_thinned_around_the_model() -> None:
    fine = loss_landscape("a", points=201)
    drawn = traces(draw("loss_landscape", [fine])[1])[0]
    assert len(drawn["z"]) <= 64 and 0.0 in drawn["x"]
    assert np.min(drawn["z"]) == pytest.approx(8.0)


def test_diverging_losses_are_gaps() -> None:
    one = loss_landscape("a")
    total = one.values["total"].copy()
    total[0, 0] = np.inf
    broken = Measurement("loss_landscape", "a", {**one.values, "total": total}, one.dims, one.axes)
    assert np.isnan(traces(draw("loss_landscape", [broken])[0])[0]["z"][0][0])


def test_the_trajectory_is_drawn_in_degrees_with_the_origin() -> None:
    (figure,) = draw("trajectory", [trajectory("a"), trajectory("b", 120.0)])
    first, _ = traces(figure)
    np.testing.assert_allclose(first["theta"], [0, 60, 60])
    assert first["r"] == [1.0, 0.5, 0.0]
    assert figure.plot.layout.polar.sector == (0, 180)
    assert "(60 larger)" in figure.finding
    assert "(60 smaller)" in draw("trajectory", [trajectory("b", 120.0), trajectory("a")])[0].finding


def test_the_hessian_states_its_share_of_the_spectrum() -> None:
    spectrum, bars = draw("hessian_spectrum", [hessian_spectrum("a", [[-1.0, 2.0, 3.0]])])
    assert spectrum.finding.startswith("Negative eigenvalues (NEP) among the 3 largest by |λ|, 1 mini-batch: 33.3 %")
    assert bars.finding.endswith("1 mini-batch: 2.50, noise not known")
    assert [axis.title.text for axis in bars.plot.select_yaxes()] == ["NEP, %", "APE"]
    _, known = draw("hessian_spectrum", [hessian_spectrum("a", [[-1.0, 2.0], [1.0, 3.0], [-2.0, 4.0]])])
    assert "among the 2 largest by |λ|, 3 mini-batches" in known.finding
    assert [axis.title.text for axis in known.plot.select_yaxes()] == ["NEP, % (bars: 95 %)", "APE (bars: 95 %)"]


def test_a_side_of_the_spectrum_without_eigenvalues_has_no_scale() -> None:
    spectrum, _ = draw("hessian_spectrum", [hessian_spectrum("a", [[1.0, 2.0]])])
    shown = [axis.showticklabels for axis in (*spectrum.plot.select_xaxes(), *spectrum.plot.select_yaxes())]
    assert shown == [False, None, False, None]


@pytest.mark.parametrize("values", [(-1.3, 2.0), (-1.3, -1.4, 90.0), (-1e-3, -5.0, 7.0), (1.0, 2.0)])
def test_both_sides_of_the_spectrum_have_ticks_inside(values: tuple[float, ...]) -> None:
    spectrum, _ = draw("hessian_spectrum", [hessian_spectrum("a", [values])])
    for axis, trace in zip(spectrum.plot.select_xaxes(), traces(spectrum), strict=True):
        inside = [tick for tick in axis.tickvals if trace["x"][0] <= tick <= trace["x"][-1]]
        assert len(inside) >= 2 and len(axis.ticktext) == len(axis.tickvals)


def test_planes_without_a_finite_loss_are_omitted() -> None:
    whole = loss_landscape("a")
    empty = Measurement(
        "loss_landscape", "b", {n: np.full_like(v, np.nan) for n, v in whole.values.items()}, whole.dims, whole.axes
    )
    contour, surface, _ = draw("loss_landscape", [empty, whole])
    assert [trace["name"] for trace in traces(surface)] == ["a"] == [trace["name"] for trace in traces(contour)]
    assert "not known for b" in contour.finding and draw("loss_landscape", [empty]) == []


def test_training_is_reported_at_the_last_evaluated_epoch() -> None:
    found = training("a", 3, lr=np.array([np.nan, 0.1, 0.05]))
    found.values["top1"][-1] = np.nan
    figure, rate = draw("training", [found])
    assert figure.paper == "CB Fig. S11" and ": 37.5 %" in figure.finding
    assert rate.finding == "Highest learning rate: 0.100"
