"""Pictures of CB's and TAPADL's figures: what is drawn decodes to the numbers of the measurements."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from experiments.synthetic import curve, entry, layered, measured
from vitlab.core.experiment import Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.experiments.catalogue import experiment
from vitlab.experiments.context_broadcasting.fig_9 import arm_of
from vitlab.experiments.pictures import picture
from vitlab.experiments.robust_token_attention.fig_7 import BRANCHES, WEIGHTS

SVG = "{http://www.w3.org/2000/svg}"
Element = ElementTree.Element


def drawn(name: str, entries: list[tuple], scale: Scale = "small") -> Element:
    return ElementTree.fromstring(picture(experiment(name), Results(entries), scale))


def number(element: Element, name: str) -> float:
    return float(element.get(name, "nan"))


def all_texts(root: Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text")]


def heads(root: Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text") if each.get("class") in ("head", "head end")]


def frames(root: Element) -> list[Element]:
    return [each for each in root.iter(f"{SVG}rect") if each.get("class") == "frame"]


def inside(frame: Element, x: float) -> bool:
    return number(frame, "x") - 1 <= x <= number(frame, "x") + number(frame, "width") + 1


def y_of(root: Element, frame: Element) -> np.poly1d:
    """The number at a height in a panel, from the texts at its left."""
    ticks = [
        (number(each, "y") - 4, float((each.text or "").replace("−", "-")))
        for each in root.iter(f"{SVG}text")
        if each.get("class") == "soft small end" and 0 < number(frame, "x") - number(each, "x") < 20
    ]
    assert len(ticks) > 1
    return np.poly1d(np.polyfit(*zip(*ticks, strict=True), 1))


def points(root: Element, frame: Element, kind: str) -> dict[str, float]:
    """The circles of a curve in a panel: name below it -> number."""
    axis = y_of(root, frame)
    names = {
        number(each, "x"): each.text or ""
        for each in root.iter(f"{SVG}text")
        if each.get("class") == "soft small middle" and inside(frame, number(each, "x"))
    }
    circles = [
        each
        for each in root.iter(f"{SVG}circle")
        if each.get("class") == f"mark {kind}" and inside(frame, number(each, "cx"))
    ]
    return {names[number(each, "cx")]: float(axis(number(each, "cy"))) for each in circles}


def assert_points(found: dict[str, float], expected: dict[str, float]) -> None:
    assert list(found) == list(expected)
    span = max(1e-9, np.ptp(list(expected.values())))
    np.testing.assert_allclose(list(found.values()), list(expected.values()), atol=0.01 * span + 1e-4)


def test_weights_of_cb_s_are_drawn_by_layer() -> None:
    """CB Fig. 8: ratio at the left, average at the right; the mean over two runs."""
    values = {
        "ratio": np.array([0.1, 0.2, 0.4]),
        "ratio_signed": np.array([0.9, 0.5, 0.7]),
        "mean": np.array([-0.02, 0.01, 0.05]),
        "mean_absolute": np.array([0.03, 0.04, 0.06]),
    }
    runs = [
        entry("cb_s", measured("broadcast_scale", **{name: each * factor for name, each in values.items()}), seed)
        for seed, factor in enumerate((0.5, 1.5))
    ]
    root = drawn("cb_fig_8", runs)
    assert heads(root) == ["Ratio of quantiles", "Average"]
    ratio, average = frames(root)
    for frame, kind, name in (
        (ratio, "ours", "ratio"),
        (ratio, "ink", "ratio_signed"),
        (average, "ours", "mean_absolute"),
        (average, "ink", "mean"),
    ):
        expected = {str(layer + 1): value for layer, value in enumerate(values[name])}
        assert_points(points(root, frame, kind), expected)


def test_accuracy_is_drawn_by_the_number_of_heads() -> None:
    """CB Fig. 9, with a number of heads that was not run and without any run with CB."""
    accuracy = {1: 60.0, 3: 64.0, 12: 62.5}
    runs = [
        entry(arm_of("", each), curve(top1=value + shift), seed)
        for each, value in accuracy.items()
        for seed, shift in enumerate((-1.0, 1.0))
    ]
    root = drawn("cb_fig_9", runs)
    (frame,) = frames(root)
    assert_points(points(root, frame, "ink"), {str(each): value for each, value in accuracy.items()})
    assert points(root, frame, "ours") == {}
    assert "with CB, ours: not run at this scale" in all_texts(root)
    assert "without CB, ours" in all_texts(root)


def test_extra_blocks_have_their_curves_and_counts() -> None:
    """CB Fig. 3: the last point of a curve is the mean over the runs; counts are differences to the eight layers."""
    finals = {"attention": (1.5, 70.0), "mlp": (1.9, 66.0)}
    runs = [
        entry(arm, curve(train_loss=loss + shift, top1=top1), seed)
        for arm, (loss, top1) in finals.items()
        for seed, shift in enumerate((-0.1, 0.1))
    ]
    counts = {"none": (15.0, 3.0), "attention": (15.6, 3.2), "mlp": (15.5, 3.1)}
    runs += [
        entry(arm, measured("sizes", parameters=parameters * 1e6, macs=macs * 1e9), model="vitlab/none")
        for arm, (parameters, macs) in counts.items()
    ]
    root = drawn("cb_fig_3", runs)
    assert heads(root) == ["Training loss", "Top-1 accuracy"]
    for place, frame in enumerate(frames(root)):
        axis = y_of(root, frame)
        for arm, kind in (("attention", "ours"), ("mlp", "ink")):
            lines = [each.get("points", "").split() for each in root.iter(f"{SVG}polyline")]
            kinds = [each.get("class") for each in root.iter(f"{SVG}polyline")]
            (line,) = [
                each
                for each, class_ in zip(lines, kinds, strict=True)
                if class_ == f"curve {kind}" and len(each) == 3 and inside(frame, float(each[0].partition(",")[0]))
            ]
            assert axis(float(line[-1].partition(",")[2])) == pytest.approx(finals[arm][place], abs=0.1)
    shown = " ".join(all_texts(root))
    assert "extra MSA block of the paper's network adds 0.600 M parameters and 0.200 G" in shown
    assert "extra MLP block of the paper's network adds 0.500 M parameters and 0.100 G" in shown


def test_heads_of_runs_are_sorted_before_their_mean() -> None:
    """CB Fig. 10: two runs with the same entropies in different heads."""
    entropies = [[1.0, 5.0, 3.0], [3.0, 1.0, 5.0]]
    runs = [
        entry(arm, layered("attention_entropy", {}, mean=(("layer", "head"), [[9.0] * 3, np.array(each) + add])), seed)
        for arm, add in (("plain", 0.5), ("cb", 0.0))
        for seed, each in enumerate(entropies)
    ]
    root = drawn("cb_fig_10", runs)
    assert heads(root) == ["Entropy of attention", "Attended keys"]
    frame = frames(root)[0]
    assert_points(points(root, frame, "ours"), {"1": 1.0, "2": 3.0, "3": 5.0})
    assert_points(points(root, frame, "ink"), {"1": 1.5, "2": 3.5, "3": 5.5})
    assert all_texts(root).count("not run at this scale") == 1, "the panel without maps"


def test_mce_is_drawn_by_branches_and_weights() -> None:
    """TAPADL Fig. 7: panels in the order of the figure, K = 1 is the baseline, and one value was not run."""
    errors = {arm: 0.6 + 0.01 * place for place, arm in enumerate((*BRANCHES.values(), *WEIGHTS.values()))}
    del errors["weight_0.1"]
    runs = [
        entry(arm, measured("corruptions", mce=value + shift, mean_accuracy=0.5), seed)
        for arm, value in errors.items()
        for seed, shift in enumerate((-0.02, 0.02))
    ]
    root = drawn("tapadl_fig_7", runs)
    top, bottom = frames(root)
    assert heads(root) == ["Top: TAP without ADL", "Bottom: ADL without TAP"]
    assert_points(points(root, top, "ours"), {str(k): 100 * errors[arm] for k, arm in BRANCHES.items()})
    expected = {str(weight): 100 * errors[arm] for weight, arm in WEIGHTS.items() if arm in errors}
    assert_points(points(root, bottom, "ours dash"), expected)
    shown = " ".join(all_texts(root))
    assert "paper 1.2" in shown and "paper 1.7" in shown


def test_similarity_of_heads_is_beside_the_papers() -> None:
    """TAPADL Fig. 4: the paper's circles are at 0.63 and 0.27, ours at the mean over runs and layers."""

    def run(similarity: float, near: list[float], seed: int) -> Measurement:
        values = {"head_similarity": (("layer",), [similarity - 0.1, similarity + 0.1])}
        rows = [[0.0] * 3, list(np.roll(near, seed))]
        return layered("attention_diversity", {}, **values, neighbourhood_mass=(("layer", "head"), rows))

    given = {"plain": (0.8, [0.2, 0.3, 0.25]), "tap_adl": (0.4, [0.9, 0.1, 0.6])}
    runs = [entry(arm, run(value, near, seed), seed) for arm, (value, near) in given.items() for seed in (0, 1)]
    root = drawn("tapadl_fig_4", runs)
    local, similar = frames(root)
    assert_points(points(root, similar, "paper dash"), {"baseline": 0.63, "+ TAP & ADL": 0.27})
    assert_points(points(root, similar, "ours dash"), {"baseline": 0.8, "+ TAP & ADL": 0.4})
    assert_points(points(root, local, "ours"), {"1": 0.1, "2": 0.6, "3": 0.9})
    assert_points(points(root, local, "ink"), {"1": 0.2, "2": 0.25, "3": 0.3})


def stability(low: float, high: float) -> Measurement:
    """Similarities that are uniform between two numbers."""
    centres = (np.arange(50) + 0.5) / 50
    shares = ((centres > low) & (centres < high)).astype(float)
    values = {"distribution": (("similarity",), shares / shares.sum()), "overall": ((), (low + high) / 2)}
    return layered("attention_stability", {}, **values)


def boxes(root: Element, frame: Element) -> list[list[float]]:
    """5 %, 25 %, 50 %, 75 % and 95 % of each box, from left to right."""
    axis = y_of(root, frame)
    bars = [each for each in root.iter(f"{SVG}line") if each.get("class") == "bar ours"]
    found = []
    for box in (each for each in root.iter(f"{SVG}rect") if each.get("class") == "box conv"):
        middle, top = number(box, "x") + number(box, "width") / 2, number(box, "y")
        near = [bar for bar in bars if abs((number(bar, "x1") + number(bar, "x2")) / 2 - middle) < 1]
        whisker, median = sorted(near, key=lambda bar: number(bar, "x2") - number(bar, "x1"))
        heights = [number(whisker, "y1"), top + number(box, "height"), number(median, "y1"), top, number(whisker, "y2")]
        found.append([float(axis(height)) for height in heights])
    return found


def test_boxes_are_quantiles_of_the_distribution() -> None:
    """TAPADL Fig. 5: a uniform distribution has known quantiles; ADL was not run."""
    given = {"plain": (0.0, 0.4), "tap": (0.2, 0.6), "tap_adl": (0.6, 1.0)}
    root = drawn("tapadl_fig_5", [entry(arm, stability(*ends), seed) for arm, ends in given.items() for seed in (0, 1)])
    (frame,) = frames(root)
    quantiles = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    expected = [low + quantiles * (high - low) for low, high in given.values()]
    np.testing.assert_allclose(boxes(root, frame), expected, atol=1e-3)
    shown = all_texts(root)
    names = ["baseline", "+ TAP", "+ ADL", "+ TAP & ADL"]
    assert [text for text in shown if text in names] == names
    assert shown.count("not run") == 1
    assert [text for text in shown if text.startswith("mean ")] == ["mean 0.200", "mean 0.400", "mean 0.800"]


def test_a_mean_without_a_distribution_is_a_point() -> None:
    """TAPADL Fig. 5 from runs that stored means only, as those of the evidence on CIFAR-100."""
    mean = layered("attention_stability", {}, overall=((), 0.7))
    root = drawn("tapadl_fig_5", [entry("plain", mean, seed) for seed in (0, 1)])
    (frame,) = frames(root)
    assert boxes(root, frame) == [] and all_texts(root).count("not run") == 3
    (mark,) = (each for each in root.iter(f"{SVG}circle") if each.get("class") == "mark ours")
    assert float(y_of(root, frame)(number(mark, "cy"))) == pytest.approx(0.7, abs=1e-3)
    assert any("A point without a box" in text for text in all_texts(root))


def attention_map(values: np.ndarray) -> Measurement:
    dims = {"blocks.3": ("image", "head", "query", "key"), "key_grid": ("layer", "side")}
    return Measurement(
        "attention_maps",
        "synthetic",
        {"blocks.3": values[None, None], "key_grid": np.array([[2, 2]])},
        dims,
        {"layer": ("blocks.3",)},
    )


def cells(root: Element, frame: Element, count: int) -> np.ndarray:
    """The steps of the rectangles over a frame, (row, column)."""
    found = np.zeros((count, count))
    for path in root.iter(f"{SVG}path"):
        left, top, unit = map(float, re.findall(r"[\d.]+", path.get("transform", "")))
        if (left, top) != (number(frame, "x"), number(frame, "y")):
            continue
        assert unit * count == pytest.approx(number(frame, "width"), rel=1e-3)
        for column, row, high in re.findall(r"M(\d+) (\d+)v(\d+)h1v-\3z", path.get("d", "")):
            found[int(row) : int(row) + int(high), int(column)] += int((path.get("class") or "").removeprefix("heat"))
    return found


def test_maps_are_drawn_entry_by_entry() -> None:
    """TAPADL Figs. 1 and 3: rows are output tokens; a map that the record does not have is a note."""
    rng = np.random.default_rng(0)
    values = rng.dirichlet(np.full(9, 0.3), 9)
    stored = attention_map(values)
    missing = layered("attention_maps", {"layer": ("blocks.3",)}, key_grid=(("layer", "side"), np.ones((1, 2))))
    gini = [
        entry("plain", layered("token_overfocus", {}, gini_of_mean=(("layer",), [0.1, each])), seed)
        for seed, each in enumerate((0.5, 0.7))
    ]
    runs = [entry("plain", stored), entry("tap_adl", missing), *gini]
    root = drawn("tapadl_fig_1", runs)
    assert heads(root) == ["baseline", "+ TAP & ADL", "Clean and noisy attention"]
    np.testing.assert_array_equal(cells(root, frames(root)[0], 9), np.round(7 * values / values.max()))
    shown = all_texts(root)
    assert "too large for the record" in shown and "Gini coefficient: 0.6" in shown
    assert shown.count("not run") == 2, "both boxes"
    third = drawn("tapadl_fig_3", runs)
    assert heads(third) == ["baseline", "+ TAP", "+ ADL", "+ TAP & ADL"]
    assert all_texts(third).count("not run at this scale") == 2
    np.testing.assert_array_equal(cells(third, frames(third)[0], 9), np.round(7 * values / values.max()))


def test_segmentation_has_the_numbers_of_the_claims() -> None:
    """TAPADL Fig. 6: snow, then night; at `small` there is no night."""
    axes = {"corruption": ("snow", "fog"), "condition": ("snow 1", "snow 2", "fog 1"), "class": ("Sky", "Road")}

    def run(shift: float) -> Measurement:
        rows = np.array([[0.9, 0.30], [0.9, 0.50], [0.1, 0.1]]) + shift
        values = {
            "corruption_miou": (("corruption",), [0.35 + shift, 0.1]),
            "class_iou": (("condition", "class"), rows),
        }
        return layered("segmentation_corruptions", axes, **values)

    root = drawn("tapadl_fig_6", [entry("plain", run(0.0)), entry("tap_adl", run(0.2))])
    assert heads(root) == ["Model", "mIoU, snow", "road, snow", "mIoU, night", "car, night"]
    ours = [each.text for each in root.iter(f"{SVG}text") if each.get("class") == "ours end"]
    assert ours == ["35.0", "40.0", "55.0", "60.0"]
    assert all_texts(root).count("not run") == 4


def test_labels_are_not_over_the_numbers_of_an_axis() -> None:
    """Numbers with many digits move the label of the vertical axis to the left."""
    values = np.array([0.0011, 0.0012, 0.0015])
    given = dict.fromkeys(("ratio", "ratio_signed", "mean", "mean_absolute"), values)
    root = drawn("cb_fig_8", [entry("cb_s", measured("broadcast_scale", **given))])
    frame = frames(root)[0]
    numbers = [
        each
        for each in root.iter(f"{SVG}text")
        if each.get("class") == "soft small end" and 0 < number(frame, "x") - number(each, "x") < 20
    ]
    widest = max(len(each.text or "") for each in numbers)
    (label,) = [each for each in root.iter(f"{SVG}text") if (each.text or "").startswith("|λ at")]
    place = float(re.findall(r"translate\(([\d.]+)", label.get("transform", ""))[0])
    assert widest >= 6
    assert place < number(numbers[0], "x") - 6 * widest, "6 pixels for each digit"
