"""The panels of HDVW's figures: what is drawn, mapped back by the ticks of its panel, is the measured number."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from experiments.synthetic import entry, layered, measured
from vitlab.core.experiment import Results
from vitlab.core.measurement import Measurement
from vitlab.experiments.catalogue import experiment
from vitlab.experiments.pictures import picture

SVG = "{http://www.w3.org/2000/svg}"
NOT_RUN = "not run at this scale"

#: The panels of each figure in the order of the paper's captions.
PANELS = {
    "hdvw_fig_1": "(a) Loss landscape, ResNet-50; (a) Loss landscape, ViT-Ti; "
    "(b) Trajectories of all runs (retracted); (c) Hessian spectrum, early phase",
    "hdvw_fig_2": "(a) ResNet-50; (a) ViT-Ti; (b) Frequency-based noise",
    "hdvw_fig_4": "Early phase, negative; Early phase, positive",
    "hdvw_fig_5": "(a) Networks on CIFAR-100; (b) Error; (b) NLL of the training images",
    "hdvw_fig_6": "Early phase, negative; Early phase, positive",
    "hdvw_fig_7": "(a) Error; (a) NLL of the training images; (b) Hessian spectrum, early phase; Text: CIFAR-100-C",
    "hdvw_fig_9": "ResNet-50; ViT-Ti",
    "hdvw_fig_10": "(a) ResNet-50; (a) Swin-Ti; (b) ResNet-50; (b) Swin-Ti",
    "hdvw_fig_12": "(a) Build-up; (b) CIFAR-100; (c) Hessian spectrum, early phase",
    "hdvw_fig_c1": "(a) CIFAR-10; (b) ImageNet",
    "hdvw_fig_c2": "Error; NLL of the training images",
    "hdvw_fig_c3": "(a) Error; (a) NLL of the training images; (b) Hessian spectrum, early phase",
    "hdvw_fig_c4": "; ".join(
        [f"(a) Loss landscape, {name}" for name in ("ResNet-50", "ViT-Ti", "PiT-Ti", "Swin-Ti")]
        + [f"(b) Trajectories (retracted), {name}" for name in ("ResNet-50", "ViT-Ti", "PiT-Ti", "Swin-Ti")]
        + [f"(c) {phase} phase, {sign}" for phase in ("Early", "Late") for sign in ("negative", "positive")]
    ),
    "hdvw_fig_c5": "Left: NEP; Left: APE; Right: Hessian spectrum, early phase",
    "hdvw_fig_c6": "Left: NEP; Left: APE; Right: Hessian spectrum, early phase",
    "hdvw_fig_c7": "; ".join(
        ["(a) NLL of the training images"]
        + [f"(b) Loss landscape, {name}" for name in ("ResNet-50", "ResNet-101", "ViT-Ti", "ViT-S")]
        + [f"(c) {phase} phase, {sign}" for phase in ("Early", "Late") for sign in ("negative", "positive")]
    ),
    "hdvw_fig_d1": "PiT-Ti; Swin-Ti",
    "hdvw_fig_d2": "Left: PiT-Ti; Right: PiT-Ti; Left: Swin-Ti; Right: Swin-Ti",
    "hdvw_fig_d3": "ViT-Ti; ResNet-50; PiT-Ti; Swin-Ti",
    "hdvw_fig_d4": "ResNet-50; ViT-Ti; PiT-Ti; Swin-Ti",
    "hdvw_fig_e1": "ImageNet and ImageNet-C; Text: other bases, CIFAR-100",
    "hdvw_fig_f1": "(a) ResNet-50 (dotted: calibrated); (a) ViT-Ti (dotted: calibrated); "
    "(b) Hessian spectrum, ResNet-50, early phase; (b) Hessian spectrum, ViT-Ti, early phase",
}


def number(element: ElementTree.Element, name: str) -> float:
    return float(element.get(name, "nan"))


def drawn(name: str, *entries: tuple) -> ElementTree.Element:
    return ElementTree.fromstring(picture(experiment(name), Results(entries), "small"))


def texts(root: ElementTree.Element, class_: str = "") -> list[str]:
    return [
        each.text or "" for each in root.iter(f"{SVG}text") if set(class_.split()) <= set(each.get("class", "").split())
    ]


@dataclass
class Frame:
    """A panel of a picture, and the lines through its ticks."""

    root: ElementTree.Element
    left: float
    top: float
    wide: float
    high: float

    def __post_init__(self) -> None:
        ticks = [
            (each, each.get("class", ""), number(each, "x"), number(each, "y")) for each in self.root.iter(f"{SVG}text")
        ]
        self.x_line = self._line(
            [(x, each) for each, kind, x, y in ticks if kind == "soft small middle" and self.below(x, y)]
        )
        self.y_line = self._line(
            [(y - 4, each) for each, kind, x, y in ticks if kind == "soft small end" and self.beside(x, y)]
        )

    def below(self, x: float, y: float) -> bool:
        return abs(y - self.top - self.high - 16) < 0.2 and self.left - 1 <= x <= self.left + self.wide + 1

    def beside(self, x: float, y: float) -> bool:
        return abs(self.left - 8 - x) < 0.2 and self.top <= y <= self.top + self.high + 5

    @staticmethod
    def _line(ticks: list[tuple[float, ElementTree.Element]]) -> np.ndarray:
        known = [(place, (each.text or "").replace("−", "-")) for place, each in ticks]
        pairs = [(place, float(text)) for place, text in known if re.fullmatch(r"-?[\d.]+(e-?\d+)?", text)]
        return np.polyfit(*zip(*pairs, strict=True), 1) if len(pairs) > 1 else np.full(2, np.nan)

    def inside(self, x: float, y: float) -> bool:
        return self.left - 1 <= x <= self.left + self.wide + 1 and self.top - 1 <= y <= self.top + self.high + 1

    def points(self, pixels: Sequence[tuple[float, float]]) -> np.ndarray:
        """(point, 2): pixels inside the panel as numbers of its axes."""
        chosen = [pixel for pixel in pixels if self.inside(*pixel)]
        return np.array([(np.polyval(self.x_line, x), np.polyval(self.y_line, y)) for x, y in chosen]).reshape(-1, 2)

    def curves(self) -> dict[str, list[np.ndarray]]:
        """Class of a line -> its curves, each (point, 2)."""
        found: dict[str, list[np.ndarray]] = {}
        for each in self.root.iter(f"{SVG}polyline"):
            pixels = [tuple(map(float, pair.split(","))) for pair in each.get("points", "").split()]
            if pixels and self.inside(*pixels[0]):
                found.setdefault(each.get("class", "").removeprefix("curve "), []).append(self.points(pixels))
        return found

    def circles(self) -> np.ndarray:
        return self.points([(number(each, "cx"), number(each, "cy")) for each in self.root.iter(f"{SVG}circle")])

    def squares(self) -> np.ndarray:
        marks = [each for each in self.root.iter(f"{SVG}rect") if each.get("class") == "mark paper"]
        return self.points([(number(each, "x") + 4, number(each, "y") + 4) for each in marks])

    def areas(self, class_: str) -> list[tuple[float, float]]:
        """Ends of areas of a class, as numbers of the horizontal axis."""
        found = [each for each in self.root.iter(f"{SVG}rect") if each.get("class") == class_]
        chosen = [each for each in found if self.inside(number(each, "x"), number(each, "y"))]
        ends = [(number(each, "x"), number(each, "x") + number(each, "width")) for each in chosen]
        return [tuple(np.round(np.polyval(self.x_line, pair), 2)) for pair in ends]


def frames(root: ElementTree.Element) -> list[Frame]:
    found = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "frame"]
    return [Frame(root, *(number(each, name) for name in ("x", "y", "width", "height"))) for each in found]


def fit(arm: str, error: float, nll: float, seed: int = 0) -> tuple:
    return entry(arm, measured("train_fit", test_error=error, train_nll=nll), seed)


def hessian(arm: str, values: Sequence[float]) -> tuple:
    eigenvalues = np.array(values, dtype=float).reshape(1, -1)
    negative, positive = (eigenvalues < 0).mean(), eigenvalues[eigenvalues > 0].mean()
    return entry(
        arm,
        measured("hessian_spectrum", eigenvalues=eigenvalues, negative_proportion=negative, positive_average=positive),
    )


def flow(kind: str, places: Sequence[str], steps: Sequence[str], **values: object) -> Measurement:
    given = {name: (("place", "index", "side")[: np.ndim(value)], value) for name, value in values.items()}
    given |= {"change": (("step",), [0.0] * len(steps))}
    return layered(kind, {"place": places, "step": steps}, **given)


@pytest.mark.parametrize("name", list(PANELS))
def test_panels_are_in_the_order_of_the_paper_and_missing_ones_are_notes(name: str) -> None:
    """With a result that no panel uses, each panel has its title, from left to right, and a note; a line per claim."""
    root = drawn(name, entry("other", measured("sizes", macs=1)))
    heads = [each for each in root.iter(f"{SVG}text") if each.get("class") == "head"]
    ordered = sorted(heads, key=lambda each: (number(each, "y"), number(each, "x")))
    assert [each.text for each in ordered] == PANELS[name].split("; ")
    assert texts(root).count(NOT_RUN) == len(heads)
    claims = [each.sentence for each in experiment(name).claims]
    assert [line.partition(": ")[2] for line in texts(root, "soft small") if ": " in line] == claims


@pytest.mark.parametrize("name", list(PANELS))
def test_no_text_leaves_the_picture(name: str) -> None:
    """With a width of 0.6 of the height of the font for a letter, 0.65 for the title."""
    root = drawn(name, entry("other", measured("sizes", macs=1)))
    width = float(root.get("viewBox", "").split()[2])
    for each in root.iter(f"{SVG}text"):
        kind = each.get("class", "").split()
        letter = 10.4 if "title" in kind else 6.6 if "small" in kind else 7.8
        long = letter * len(each.text or "")
        if "transform" not in each.attrib:
            start = number(each, "x") - (long if "end" in kind else long / 2 if "middle" in kind else 0)
            assert start >= 0 and start + 0.9 * long <= width, each.text


def test_points_of_networks_and_of_the_paper() -> None:
    """Fig. 5a: means over two runs, the numbers of App. C as squares, and names of networks without runs."""
    runs = [
        fit(arm, error + add, nll, seed)
        for arm, error, nll in (("pit_tiny", 0.31, 2.5), ("vit_tiny", 0.4, 2.8))
        for seed, add in enumerate((-0.01, 0.01))
    ]
    root = drawn("hdvw_fig_5", *runs)
    networks, error, nll = frames(root)
    np.testing.assert_allclose(networks.circles(), [[40, 2.8], [31, 2.5]], atol=0.02)
    np.testing.assert_allclose(networks.squares(), [[22.0, 2.31], [24.1, 2.29], [30.4, 2.17]], atol=0.1)
    shown = texts(root)
    assert shown.index("ViT-Ti") < shown.index("PiT-Ti") < shown.index("PiT-Ti (paper)"), "from high to low"
    assert "no result: ResNet-50, ResNeXt-50, Swin-Ti, Twins-S, Mixer-Ti, ResNet-18, ViT-S" in shown
    assert shown.count("no result: 2 %, 10 %, 50 %") == 2, "Fig. 5b has all images only"
    assert error.y_line[0] < 0 and np.isclose(error.circles()[0, 1], 40, atol=0.01)
    assert np.isclose(nll.circles()[0, 1], 2.8, atol=0.01)


def test_curves_by_setting() -> None:
    """Fig. C.2: errors of ViT (solid) and ResNet (dashed) at the lengths of training; the longest was not run."""
    errors = {"vit_tiny": [0.5, 0.4, 0.35, 0.3], "resnet50": [0.4, 0.3, 0.25, 0.2]}
    runs = [
        fit(f"{arm}, length {2**i}", error, 1 + error)
        for arm, values in errors.items()
        for i, error in enumerate(values)
    ]
    root = drawn("hdvw_fig_c2", *runs)
    for frame, numbers in zip(frames(root), (lambda e: 100 * e, lambda e: 1 + e), strict=True):
        found = frame.curves()
        for kind, arm in (("ours", "vit_tiny"), ("ours dash", "resnet50")):
            np.testing.assert_allclose(found[kind][0][:, 1], [numbers(e) for e in errors[arm]], rtol=2e-3)
    assert texts(root).count("no result: ×16") == 2


def test_the_areas_of_a_spectrum_are_nep_and_the_rest() -> None:
    """Fig. 4: shares of bins sum to that of negative eigenvalues on the left, and of positive ones on the right."""
    rng = np.random.default_rng(0)
    values = {"resnet50, early": rng.normal(50, 30, 400), "vit_tiny, early": rng.normal(5, 20, 400)}
    root = drawn("hdvw_fig_4", *(hessian(arm, each) for arm, each in values.items()))
    negative, positive = frames(root)
    for kind, arm in (("ink", "resnet50, early"), ("ours", "vit_tiny, early")):
        nep = 100 * (values[arm] < 0).mean()
        for frame, expected in ((negative, nep), (positive, 100 - nep)):
            corners = frame.curves()[kind][0]
            assert corners[1:-1:2, 1].sum() == pytest.approx(expected, abs=0.5)
    assert np.polyval(negative.x_line, negative.left + negative.wide) == pytest.approx(0, abs=0.05)
    assert texts(root).count("no result: ViT-Ti, 6 % of the data") == 2
    whole = frames(drawn("hdvw_fig_1", *(hessian(arm, each) for arm, each in values.items())))[1]
    corners = whole.curves()["ours"][0]
    below = (corners[1:-1:2, 0] + corners[2::2, 0]) / 2 < 0
    nep = 100 * (values["vit_tiny, early"] < 0).mean()
    assert corners[1:-1:2, 1][below].sum() == pytest.approx(nep, abs=0.5), "no bin has both signs"


def test_landscapes_share_heights_and_colours() -> None:
    """Fig. 1a: colours go from the lowest to the highest loss of both networks."""
    flat = np.full((4, 4), 2.0)
    bowl = flat.copy()
    bowl[0, 0] = 12.0
    root = drawn(
        "hdvw_fig_1",
        *(entry("resnet50", measured("loss_landscape", total=bowl, nll=bowl), seed) for seed in range(2)),
        entry("vit_tiny", measured("loss_landscape", total=flat, nll=flat)),
    )
    polygons = [each.get("class") for each in root.iter(f"{SVG}polygon")]
    assert len(polygons) == 2 * 9
    assert polygons[0] == "level2", "a corner of four at the top: a quarter"
    assert set(polygons[1:]) == {"level0"}
    assert texts(root, "small end").count("2") == 2 and texts(root, "small").count("12  NLL + ℓ₂") == 2


def test_trajectories_are_polar_coordinates_of_each_run() -> None:
    radius, angle = np.array([1.0, 0.5, 0.0]), np.array([0.0, np.pi / 3, np.nan])
    runs = [
        entry("resnet50", measured("trajectory", radius=radius * (1, 1 + seed, 1), angle=angle), seed)
        for seed in (0, 1)
    ]
    root = drawn("hdvw_fig_1", *runs)
    first, second = frames(root)[0].curves()["ink"]
    np.testing.assert_allclose(first, [[1, 0], [0.25, 0.433], [0, 0]], atol=2e-3)
    np.testing.assert_allclose(second[1], [0.5, 0.866], atol=3e-3)
    assert "no result: ViT-Ti" in texts(root)


def test_amplitude_by_frequency_has_a_curve_for_each_place_but_the_last() -> None:
    """Fig. 2a, with rows of two grids; Fig. 2b in points."""
    amplitude = np.array([[0, -1, -2], [0, -2, -3], [0, -4, np.nan], [0, -9, np.nan]])
    frequency = np.array([[0, 0.25, 0.5], [0, 0.25, 0.5], [0, 0.5, np.nan], [0, 0.5, np.nan]])
    found = flow("feature_fourier", "abcd", ["a MSA"], amplitude=amplitude, frequency=frequency, high=amplitude[:, 1])
    noise = layered("frequency_noise", {"frequency": (0.2, 0.8)}, drop=(("frequency",), [0.1, 0.35]))
    root = drawn("hdvw_fig_2", entry("vit_tiny", found), entry("resnet50", noise), entry("vit_tiny", noise))
    _, vit, against_noise = frames(root)
    curves = vit.curves()
    assert list(curves) == ["depth0", "depth4", "depth7"]
    np.testing.assert_allclose(curves["depth4"][0], [[0, 0], [0.25, -2], [0.5, -3]], atol=0.02)
    np.testing.assert_allclose(curves["depth7"][0], [[0, 0], [0.5, -4]], atol=0.02)
    np.testing.assert_allclose(against_noise.curves()["ink"][0], [[0.2, 10], [0.8, 35]], atol=0.1)


def test_amplitude_by_depth_shades_msas_and_subsampling() -> None:
    """Fig. D.2: two stages of one block; the place before subsampling and the one behind it are both drawn."""
    places = [
        f"layers.{stage}.blocks.{block} {at}"
        for stage, block in ((0, 0), (0, 1), (1, 0))
        for at in ("in", "mid", "out")
    ]
    high = [-1.0, -2, -1.5, -1.5, -3, -2.5, -1, -2, -1]
    grid = [[8, 8]] * 6 + [[4, 4]] * 3
    steps = [f"layers.0.blocks.0 {unit}" for unit in ("MSA", "MLP")]
    amplitude = np.stack([np.zeros(9), high], 1)
    found = flow("feature_fourier", places, steps, amplitude=amplitude, frequency=[[0, 0.75]] * 9, high=high, grid=grid)
    swin = frames(drawn("hdvw_fig_d2", entry("swin_tiny", found)))[3]
    expected = [-1, -2, -1.5, -3, -2.5, -1, -2, -1]
    np.testing.assert_allclose(swin.circles()[:, 1], expected, atol=0.02)
    np.testing.assert_allclose(swin.circles()[:, 0], np.arange(1, 9), atol=0.02)
    assert swin.areas("shade") == [(1, 2), (3, 4), (6, 7)] and swin.areas("sub") == [(5, 6)]


def test_similarities_are_colours_from_the_lower_left() -> None:
    cka = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 1.0]])
    found = layered("representation_cka", {"layer": "abc", "other_layer": "abc"}, cka=(("layer", "other_layer"), cka))
    root = drawn("hdvw_fig_10", entry("swin_tiny", found))
    swin = frames(root)[1]
    squares = [
        each for each in root.iter(f"{SVG}rect") if "level" in each.get("class", "") and number(each, "height") > 50
    ]
    seen = {}
    for each in squares:
        half = number(each, "width") / 2
        (x, y), *_ = swin.points([(number(each, "x") + half, number(each, "y") + half)])
        seen[round(y), round(x)] = int(each.get("class", "").removeprefix("level"))
    assert seen == {(i + 1, j + 1): min(7, int(8 * value)) for (i, j), value in np.ndenumerate(cka)}


def test_removed_units_are_drawn_as_losses_in_points() -> None:
    """Fig. D.4: the decrease in accuracy without each unit, MSAs shaded, a line between the stages."""
    units = ["layers.0.blocks.0 MSA", "layers.0.blocks.0 MLP", "layers.1.blocks.0 MSA", "layers.1.blocks.0 MLP"]
    found = layered(
        "lesion", {"unit": units}, change=(("unit",), [-0.1, 0.02, -0.3, -0.2]), stage=(("unit",), [0, 0, 1, 1])
    )
    root = drawn("hdvw_fig_d4", entry("swin_tiny", found))
    swin = frames(root)[3]
    np.testing.assert_allclose(swin.circles(), [[1, 10], [2, -2], [3, 30], [4, 20]], atol=0.1)
    assert swin.areas("shade") == [(0.5, 1.5), (2.5, 3.5)]
    upright = [number(each, "x1") for each in root.iter(f"{SVG}line") if each.get("x1") == each.get("x2")]
    assert [round(float(np.polyval(swin.x_line, x)), 2) for x in upright] == [2.5]
    assert texts(root).count(NOT_RUN) == 3


def test_reliability_is_that_of_all_predictions() -> None:
    """Fig. F.1a: 10 and 30 predictions of two runs in a bin, against the mean over all 40; empty bins have no point."""
    nan = float("nan")
    runs = [
        entry(
            "vit_tiny, weak",
            measured("calibration", bin_count=count, bin_confidence=confidence, bin_accuracy=accuracy, signed_ece=0.1),
            seed,
        )
        for seed, (count, confidence, accuracy) in enumerate(
            [([0, 10], [nan, 0.8], [nan, 0.4]), ([0, 30], [nan, 0.9], [nan, 0.8])]
        )
    ]
    root = drawn("hdvw_fig_f1", *runs)
    vit = frames(root)[1]
    np.testing.assert_allclose(vit.circles(), [[87.5, 70]], atol=0.1)
    assert "no result: with strong augmentation" in texts(root)
    np.testing.assert_allclose(vit.curves()["ink dot"][0], [[0, 0], [100, 100]], atol=0.1)


def test_numbers_that_are_not_finite_are_left_out() -> None:
    """A diverged network is a note, and the axes are those of the others."""
    nan, flat = float("nan"), np.full((3, 3), 2.0)
    networks = frames(drawn("hdvw_fig_5", fit("resnet50", 0.9, nan), fit("vit_tiny", 0.4, 2.8)))[0]
    np.testing.assert_allclose(networks.circles(), [[40, 2.8]], atol=0.05)
    root = drawn(
        "hdvw_fig_1",
        entry("resnet50", measured("loss_landscape", total=flat * nan, nll=flat)),
        entry("vit_tiny", measured("loss_landscape", total=flat, nll=flat)),
    )
    assert "no finite loss" in texts(root) and len(list(root.iter(f"{SVG}polygon"))) == 4
