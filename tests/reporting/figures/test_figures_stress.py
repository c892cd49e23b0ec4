"""Figures of the stress tests: they hold the measurement's numbers, and say the right thing about them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vitlab.core.measurement import Measurement
from vitlab.core.old_files import errors_by_name
from vitlab.reporting.comparison import compare
from vitlab.reporting.drawing import Figure, draw
from vitlab.reporting.sections import sort

TYPES = ("gaussian_noise", "fog", "jpeg_compression")
AXES: dict[str, dict[str, tuple[Any, ...]]] = {
    "corruptions": {"corruption": TYPES, "severity": (1, 2, 3, 4, 5)},
    "frequency_noise": {"frequency": (0.0, 0.25, 0.75, 1.0)},
    "occlusion": {"mask": ("centre 0.5", "patches 0.5", "patches 0.1")},
    "patch_shuffle": {"grid": (8, 2)},
    "adversarial": {"attack": ("fgsm", "pgd"), "epsilon": (4.0, 1.0)},
    "shape_texture": {"decision": ("shape", "texture", "both", "neither")},
    "imagenet_v2": {"set": ("matched-frequency", "threshold-0.7", "top-images")},
    "imagenet_p": {"perturbation": ("gaussian_noise", "tilt")},
    "segmentation_corruptions": {"condition": ("shot_noise 255", "gaussian_blur 1"), "group": ("noise", "blur")},
}
AXES["imagenet_c"] = AXES["cifar_c"] = AXES["corruptions"]
SCALARS = {
    "imagenet_a": ("accuracy_200", "accuracy_1000"),
    "imagenet_r": ("accuracy_200", "accuracy_1000"),
    "imagenet_sketch": ("accuracy",),
    "imagenet_real": ("accuracy", "original_accuracy"),
}
KINDS = [*AXES, *SCALARS]


def values_of(kind: str, seed: int, shift: float = 0.0) -> dict[str, np.ndarray]:
    """The values that the stress test returns, at random; `shift` moves every share."""
    random = np.random.default_rng(seed)
    if kind in SCALARS:
        shares = {name: np.asarray(0.4 + shift) for name in SCALARS[kind]}
        return {**shares, **{f"{name}_error": np.asarray(0.001) for name in shares}}
    shape = tuple(len(labels) for labels in AXES[kind].values())
    if kind == "shape_texture":
        share = np.array([0.4 + shift, 0.3 - shift, 0.2, 0.1])
        bias = {"shape_bias": np.asarray(share[0] / share[:2].sum()), "shape_bias_error": np.asarray(0.01)}
        return {"share": share, "standard_error": np.full(4, 0.01), **bias}
    if kind == "imagenet_p":
        flips = {"flip_probability": np.array([0.1, 0.2]) + shift / 4, "flip_rate": np.array([0.5, 0.7]) + shift}
        errors = {f"{name}_error": np.full(2, 0.01) for name in flips}
        return {**flips, **errors, "mfr": flips["flip_rate"].mean(), "mfr_error": np.asarray(0.001)}
    if kind == "imagenet_v2":
        return {"accuracy": random.uniform(0.3, 0.4, shape) + shift, "accuracy_error": np.full(shape, 0.001)}
    if kind == "segmentation_corruptions":
        miou = np.array([0.3, 0.35]) + shift
        values = {"miou": miou, "miou_interval": np.array([0.02, 0.0]), "group_miou": miou}
        return values | {
            "clean_miou": np.asarray(0.5),
            "mean_miou": miou.mean(),
            "mean_miou_interval": np.asarray(0.001),
        }
    accuracy = random.uniform(0.2, 0.4, shape) + shift
    values = {"accuracy": accuracy, "standard_error": np.full(shape, 0.01), "clean_accuracy": np.asarray(0.7)}
    values |= {"drop": 0.7 - accuracy, "drop_error": np.full(shape, 0.01), "clean_error": np.asarray(0.002)}
    if kind in ("corruptions", "imagenet_c", "cifar_c"):
        values |= {"error": 1 - accuracy, "ce": (1 - accuracy.mean(1)) / 0.8, "ce_error": np.full(3, 0.01)}
        values |= {"mce": values["ce"].mean(), "mce_error": np.asarray(0.001)}
        values |= {"mean_accuracy": accuracy.mean(), "mean_accuracy_error": np.asarray(0.001)}
    return values


def make(kind: str, subject: str = "a", shift: float = 0.0, seed: int = 0, **replaced: np.ndarray) -> Measurement:
    values = {name: np.asarray(value) for name, value in (values_of(kind, seed, shift) | replaced).items()}
    axes = AXES.get(kind, {})
    own = {"group_miou": ("group",)}
    dims = {name: own.get(name, tuple(axes)[: value.ndim]) for name, value in values.items()}
    return Measurement(kind, subject, values, dims, axes, errors=errors_by_name(dims))


def traces(figure: Figure) -> list[dict[str, Any]]:
    """The traces as a browser reads them, with numbers in plain lists."""

    def plainly(thing: Any) -> Any:
        if isinstance(thing, dict) and "bdata" in thing:
            import base64

            flat = np.frombuffer(base64.b64decode(thing["bdata"]), thing["dtype"])
            return flat.reshape([int(side) for side in str(thing.get("shape", len(flat))).split(",")]).tolist()
        return {key: plainly(value) for key, value in thing.items()} if isinstance(thing, dict) else thing

    return [plainly(trace) for trace in json.loads(figure.plot.to_json())["data"]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("models", [1, 2, 6])
def test_every_figure_has_a_finding_and_is_json(kind: str, models: int) -> None:
    found = draw(kind, [make(kind, f"model {i}", 0.01 * i, i) for i in range(models)])
    for figure in found:
        assert figure.finding and "nan" not in figure.finding
        named = {trace["name"] for trace in traces(figure)}
        assert named == {f"model {i}" for i in range(models)}


@pytest.mark.parametrize("kind", KINDS)
def test_nan_values_leave_a_gap(kind: str) -> None:
    whole = make(kind)
    empty = {name: np.full(np.shape(value), np.nan) for name, value in whole.values.items()}
    for measurements in ([make(kind, **empty)], [make(kind, "a"), make(kind, "b", **empty)]):
        for figure in draw(kind, measurements):
            json.loads(figure.plot.to_json(), parse_constant=pytest.fail)
            assert "nan" not in figure.finding


@pytest.mark.parametrize("kind", KINDS)
def test_the_finding_agrees_with_the_numbers(kind: str) -> None:
    errs = kind in ("corruptions", "imagenet_c", "cifar_c", "frequency_noise")
    higher, lower = (
        draw(kind, [make(kind, "a"), make(kind, "b", 0.1)]),
        draw(kind, [make(kind, "a"), make(kind, "b", -0.1)]),
    )
    assert ("higher" in higher[0].finding) != errs and ("lower" in higher[0].finding) == errs
    assert ("lower" in lower[0].finding) != errs and ("higher" in lower[0].finding) == errs
    same = draw(kind, [make(kind, "a"), make(kind, "b")])
    assert "the same" in same[0].finding


def test_the_table_of_corruptions_is_in_percent_and_in_order() -> None:
    one = make("corruptions", "a")
    table, by_type = draw("corruptions", [one, make("corruptions", "b", 0.1)])
    first = traces(table)[0]
    np.testing.assert_allclose(first["z"], 100 * one.values["error"])
    assert first["y"] == ["gaussian noise", "fog", "jpeg compression"]
    bar = traces(by_type)[0]
    np.testing.assert_allclose(bar["y"], 100 * np.array([one.values["mce"], *one.values["ce"]]))
    np.testing.assert_allclose(bar["error_y"]["array"], 196 * np.array([0.001, 0.01, 0.01, 0.01]))
    assert bar["x"][0] == "mCE" and by_type.finding.startswith("mCE")


def test_without_a_baseline_bars_are_mean_errors() -> None:
    missing = {name: np.full(shape, np.nan) for name, shape in {"ce": (3,), "ce_error": (3,), "mce": ()}.items()}
    one = make("corruptions", "a", **missing)
    bar = traces(draw("corruptions", [one])[1])[0]
    expected = [1 - one.values["accuracy"].mean(), *(1 - one.values["accuracy"].mean(1))]
    np.testing.assert_allclose(bar["y"], 100 * np.array(expected))
    worst = TYPES[int(one.values["accuracy"].mean(1).argmin())].replace("_", " ")
    assert f"a highest under {worst}" in draw("corruptions", [one])[1].finding


def test_the_title_above_bars_of_ce_is_about_ce() -> None:
    """Not all 15 corruptions: no mCE, but CE is known. The hardest by CE need not be the hardest by error."""
    ce = np.array([0.2, 0.9, 0.4])
    one = make("corruptions", "a", ce=ce, mce=np.asarray(np.nan), error=np.array([[0.9] * 5, [0.1] * 5, [0.5] * 5]))
    figure = draw("corruptions", [one])[1]
    np.testing.assert_allclose(traces(figure)[0]["y"][1:], 100 * ce)
    assert figure.finding.startswith("CE, error relative to the reference model: a highest under fog (90.0")
    assert "lowest under gaussian noise (20.0" in figure.finding


@pytest.mark.parametrize(
    ("abouts", "sentence"),
    [
        ([{"images": 64, "partial": True}], "; on 64 images, not the full 50,000"),
        ([{"images": 1024, "partial": True}] * 2, "; on 1,024 images, not the full 50,000"),
        ([{"images": 50, "partial": True, "official_images": 10_000}, {}], "; on 50 images, not the full 10,000"),
        ([{"images": 64, "partial": True, "data": "imagenet test[:64] ab"}], "; on 64 images, not the full 50,000"),
        ([{"images": 64, "partial": True, "official_images": 50_000, "data": "scenes(test=426) test[:64] ab"}], ""),
        ([{"images": 50_000, "partial": False}], ""),
        ([{}], ""),
    ],
)
def test_a_subset_of_the_images_is_stated(abouts: list[dict[str, Any]], sentence: str) -> None:
    models = [make("corruptions", f"model {i}", 0.01 * i) for i in range(len(abouts))]
    subsets = [replace(model, provenance=about) for model, about in zip(models, abouts, strict=True)]
    assert draw("corruptions", subsets)[0].finding == draw("corruptions", models)[0].finding + sentence


def test_models_with_other_corruptions_share_the_rows() -> None:
    one = make("corruptions", "a")
    few = Measurement(
        "corruptions",
        "b",
        {"error": np.array([[0.25], [0.75]]), "ce": np.full(2, np.nan)},
        {"error": ("corruption", "severity"), "ce": ("corruption",)},
        {"corruption": ("fog", "snow"), "severity": (3,)},
    )
    _, second = traces(draw("corruptions", [one, few])[0])
    assert second["y"] == ["gaussian noise", "fog", "jpeg compression", "snow"]
    assert second["z"][1] == [None, None, 25.0, None, None] and second["z"][3][2] == 75.0
    assert second["z"][0] == [None] * 5


def test_means_over_other_corruptions_are_not_compared() -> None:
    axes = {"corruption": ("fog", "snow"), "severity": (1,)}
    dims = {"error": ("corruption", "severity"), "ce": ("corruption",), "mean_accuracy": (), "clean_accuracy": ()}
    values = {"error": np.array([[0.2], [0.4]]), "ce": np.full(2, np.nan)}
    values |= {"mean_accuracy": np.array(0.7), "clean_accuracy": np.array(0.9)}
    both = Measurement("corruptions", "a", values, dims, axes)
    fewer = {**values, "error": values["error"][:1], "ce": values["ce"][:1], "mean_accuracy": np.array(0.8)}
    one = replace(both, subject="b", values=fewer, axes={**axes, "corruption": ("fog",)})
    title = draw("corruptions", [both, one])[0].finding
    assert "not comparable" in title and "a: 30.0 %" in title and "b: 20.0 %" in title and "lower" not in title
    (section,) = sort([both, one], {"a": "a", "b": "b"})
    assert [each.name for each in compare(section)] == ["clean_accuracy"]
    (section,) = sort([both, replace(both, subject="b")], {"a": "a", "b": "b"})
    assert "mean_accuracy" in [each.name for each in compare(section)]


def test_curves_begin_with_the_unmodified_images() -> None:
    shuffle, attack, hidden = (make(kind) for kind in ("patch_shuffle", "adversarial", "occlusion"))
    (curve,) = traces(draw("patch_shuffle", [shuffle])[0])
    assert curve["x"] == ["clean", "2 × 2", "8 × 8"]
    np.testing.assert_allclose(curve["y"], 100 * np.array([0.7, *shuffle.values["accuracy"][[1, 0]]]))
    np.testing.assert_allclose(curve["error_y"]["array"], 196 * np.array([0.002, 0.01, 0.01]))
    fgsm, pgd = traces(draw("adversarial", [attack])[0])
    assert fgsm["x"] == pgd["x"] == [0.0, 1.0, 4.0]
    np.testing.assert_allclose(pgd["y"], 100 * np.array([0.7, *attack.values["accuracy"][1][[1, 0]]]))
    patches, centre = traces(draw("occlusion", [hidden])[0])
    assert patches["x"] == [0.0, 10.0, 50.0] and centre["x"] == [0.0, 50.0], "in percent, as accuracy is"
    np.testing.assert_allclose(patches["y"], 100 * np.array([0.7, *hidden.values["accuracy"][[2, 1]]]))
    np.testing.assert_allclose(centre["y"], 100 * np.array([0.7, hidden.values["accuracy"][0]]))


def test_findings_use_the_strongest_common_perturbation() -> None:
    one = make("adversarial", "a")
    sentence = draw("adversarial", [one])[0].finding
    assert sentence == f"Accuracy under PGD at ε = 4/255: {100 * one.values['accuracy'][1, 0]:.1f} ± 2.0 %"
    other = Measurement(
        "adversarial",
        "b",
        {"accuracy": np.zeros((1, 1))},
        {"accuracy": ("attack", "epsilon")},
        {"attack": ("cw",), "epsilon": (2.0,)},
    )
    assert "not comparable" in draw("adversarial", [one, other])[0].finding


def test_low_and_high_frequencies_are_distinguished() -> None:
    drops = np.array([0.0, 0.1, 0.3, 0.5])
    forward = make("frequency_noise", "ResNet", drop=drops)
    backward = make("frequency_noise", "ViT", drop=drops[::-1])
    (figure,) = draw("frequency_noise", [forward, backward])
    assert "above 0.5 π: 40.0 points for ResNet, 5.0 points for ViT (35.0 lower)" in figure.finding
    assert "below 0.5 π: 5.0 points for ResNet, 40.0 points for ViT (35.0 higher)" in figure.finding
    np.testing.assert_allclose(traces(figure)[1]["y"], 100 * drops[::-1])
    assert traces(figure)[0]["x"] == [0.0, 0.25, 0.75, 1.0]


def test_shape_bias_and_shares() -> None:
    one = make("shape_texture")
    shares, bias = traces(draw("shape_texture", [one])[0])
    np.testing.assert_allclose(shares["y"], [40, 30, 20, 10])
    np.testing.assert_allclose(bias["y"], [100 * 0.4 / 0.7])


def test_both_accuracies_of_a_set_are_drawn() -> None:
    one = make("imagenet_a", "a", accuracy_200=np.asarray(0.25), accuracy_1000=np.asarray(0.125))
    (figure,) = draw("imagenet_a", [one])
    (bar,) = traces(figure)
    assert bar["y"] == [25.0, 12.5] and bar["x"] == ["among the set's 200 classes", "among all 1000 classes"]
    assert "200 classes: 25.00 ± 0.20 %" in figure.finding
    sets = make("imagenet_v2", "a", accuracy=np.array([np.nan, 0.5, 0.6]))
    assert traces(draw("imagenet_v2", [sets])[0])[0]["y"] == [None, 50.0, 60.0]
    assert "threshold-0.7: 50.00 ± 0.20 %" in draw("imagenet_v2", [sets])[0].finding


def test_a_subset_of_a_set_is_stated() -> None:
    one = make("imagenet_sketch")
    part = replace(one, subject="b", provenance={"partial": True})
    assert draw("imagenet_sketch", [one, part])[0].finding.endswith("Measured on part of the set for b")


def test_flips_are_rates_where_the_reference_is_known() -> None:
    (figure,) = draw("imagenet_p", [make("imagenet_p")])
    (bar,) = traces(figure)
    assert bar["x"] == ["mFR", "gaussian noise", "tilt"] and figure.finding == "mFR: 60.00 ± 0.20 %"
    np.testing.assert_allclose(bar["y"], [60, 50, 70])
    np.testing.assert_allclose(bar["error_y"]["array"], [0.196, 1.96, 1.96])
    unknown = make("imagenet_p", "b", flip_rate=np.full(2, np.nan), mfr=np.asarray(np.nan))
    (figure,) = draw("imagenet_p", [make("imagenet_p"), unknown])
    assert traces(figure)[0]["x"] == ["gaussian noise", "tilt"]
    np.testing.assert_allclose(traces(figure)[0]["y"], [10, 20])
    assert "Mean flip probability over 2 of the 10 perturbations: 15.0 % for a" in figure.finding


def test_segmentation_shows_intervals_and_the_worst_group() -> None:
    one = make("segmentation_corruptions")
    by_condition, by_group = draw("segmentation_corruptions", [one])
    (bar,) = traces(by_condition)
    assert bar["x"] == ["clean", "shot noise 255", "gaussian blur 1"]
    np.testing.assert_allclose(bar["y"], [50, 30, 35])
    np.testing.assert_allclose(bar["error_y"]["array"][1:], [2, 0])  # half the 95 % interval, in points
    assert "noise for a (30.0 %)" in by_group.finding
    single = make("segmentation_corruptions", miou_interval=np.array([np.inf, 0.0]))
    assert not np.isfinite(traces(draw("segmentation_corruptions", [single])[0])[0]["error_y"]["array"][1] or np.nan)


def test_many_strengths_are_drawn_by_corruption() -> None:
    names = tuple(f"fog {i}" for i in range(30))
    values = {"miou": np.full(30, 0.4), "corruption_miou": np.array([0.4]), "mean_miou": np.asarray(0.4)}
    dims = {"miou": ("condition",), "corruption_miou": ("corruption",), "mean_miou": ()}
    many = Measurement("segmentation_corruptions", "a", values, dims, {"condition": names, "corruption": ("fog",)})
    (bar,) = traces(draw("segmentation_corruptions", [many])[0])
    assert bar["x"] == ["fog"] and bar["y"] == [40.0]


def test_models_without_accuracy_have_no_drop() -> None:
    near_chance = make("frequency_noise", "b", clean_accuracy=np.asarray(0.2))
    sentence = draw("frequency_noise", [make("frequency_noise", "a"), near_chance])[0].finding
    assert sentence.endswith("; accuracy without noise: 70.00 % for a, 20.00 % for b (50.00 points lower)")


def test_only_fgsm_is_labelled_as_in_the_paper() -> None:
    one = make("adversarial")
    assert draw("adversarial", [one])[0].paper == "CB Table 8 (FGSM; its ε is not given)"
    other = replace(one, axes={**one.axes, "attack": ("cw", "pgd")})
    assert draw("adversarial", [other])[0].paper == ""


def test_the_hardest_corruption_has_its_noise() -> None:
    missing = {name: np.full(shape, np.nan) for name, shape in {"ce": (3,), "mce": ()}.items()}
    one = make("corruptions", "a", accuracy=np.full((3, 5), 0.4), error=np.full((3, 5), 0.6), **missing)
    assert "(60.0 ± 2.0 %)" in draw("corruptions", [one])[1].finding
    unknown = make("corruptions", "a", standard_error=np.full((3, 5), np.nan), **missing)
    figure = draw("corruptions", [unknown])[1]
    assert figure.finding.endswith("; noise not known") and len(figure.plot.layout.yaxis.title.text) < 30


@pytest.mark.parametrize("kind", KINDS)
def test_error_bars_are_mentioned_only_if_drawn(kind: str) -> None:
    doubts = {
        n: np.full(np.shape(v), np.nan) for n, v in make(kind).values.items() if n.endswith(("_error", "_interval"))
    }
    assert "(bars" not in "".join(figure.plot.to_json() for figure in draw(kind, [make(kind, **doubts)]))
    assert "(bars" in "".join(figure.plot.to_json() for figure in draw(kind, [make(kind)]))
