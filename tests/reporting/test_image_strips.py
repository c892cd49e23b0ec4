"""Thumbnails: the images that differ most come first, and pictures are small."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from vitlab.core.measurement import Measurement
from vitlab.reporting import report
from vitlab.reporting.image_strips import strips
from vitlab.reporting.sections import label_models, sort

EXAMPLES = {"example": ("examples",), "example_index": ("examples",), "example_label": ("examples",)}


def calibration(subject: str, losses: list[float], shown: list[int], data: str = "d") -> Measurement:
    pictures = np.stack([np.full((8, 8, 3), 20 * place, dtype=np.uint8) for place in shown])
    values: dict[str, np.ndarray] = {"nll_by_image": np.array(losses), "nll": np.array(np.mean(losses))}
    values |= {"example": pictures, "example_index": np.array(shown)}
    values["example_label"] = np.array([f"class {place}" for place in shown])
    dims = {"nll_by_image": ("image",), "nll": (), "example": ("example", "row", "column", "channel")}
    dims |= {"example_index": ("example",), "example_label": ("example",)}
    pooling = {"nll_by_image": ("concatenate", "image"), "nll": ("mean_of", "each", "nll_by_image"), **EXAMPLES}
    return Measurement("calibration", subject, values, dims, provenance={"data": data}, pooling=pooling)


def made(*measurements: Measurement) -> Any:
    (section,) = sort(measurements, label_models(measurements))
    return strips(section)


def grey(source: str) -> float:
    data = base64.b64decode(source.removeprefix("data:image/jpeg;base64,"))
    return float(np.asarray(Image.open(io.BytesIO(data))).mean())


def test_images_are_sorted_by_the_difference_of_probability() -> None:
    one = calibration("a", [0.1, 3.0, 0.5, 2.0], [1, 3])
    other = calibration("b", [0.2, 2.9, 4.0, 0.0], [2, 1])
    (strip,) = made(one, other)
    # |exp(-2) - 1| = 0.86 for image 3, |exp(-0.5) - exp(-4)| = 0.59 for image 2, 0.005 for image 1
    assert [picture.lines for picture in strip.pictures] == [
        ["class 3", "14 % → 100 %"],
        ["class 2", "61 % → 2 %"],
        ["class 1", "5 % → 6 %"],
    ]
    assert [round(grey(picture.source) / 20) for picture in strip.pictures] == [3, 2, 1]


def test_images_that_all_models_get_right_are_found() -> None:
    """The largest difference, 67 % against 99 %, is on the image with the lowest loss of one model."""
    losses = [[0.4, 3.0, 2.0, 2.5], [0.01, 3.1, 2.1, 2.4]]
    (strip,) = made(*(calibration(name, each, [0, 1, 2, 3]) for name, each in zip("ab", losses, strict=True)))
    assert strip.title == "Images on which a and b differ most: probability of the label, a → b"
    assert strip.pictures[0].lines == ["class 0", "67 % → 99 %"]
    chances = np.exp(-np.array(losses))
    order = np.argsort(-np.abs(chances[0] - chances[1]))
    assert [picture.lines[0] for picture in strip.pictures] == [f"class {place}" for place in order]


def test_the_title_states_images_without_pictures() -> None:
    (strip,) = made(calibration("a", [0.4, 3.0, 2.0], [1]), calibration("b", [0.01, 3.1, 2.1], [1, 2]))
    assert strip.title == "Images on which a and b differ most, among 2 of 3 images: probability of the label, a → b"


def test_models_on_other_images_are_not_compared() -> None:
    assert made(calibration("a", [0.1, 3.0], [1]), calibration("b", [0.2, 2.9], [1], data="e")) == []


def corruptions(subject: str) -> Measurement:
    values = {"error": np.array([[0.5], [0.0]]), "example": np.full((2, 2, 8, 8, 3), 40, dtype=np.uint8)}
    values |= {"example_severity": np.array([[3, 5], [0, 0]]), "example_index": np.array([[7, 9], [-1, -1]])}
    dims = {"error": ("corruption", "severity"), "example": ("corruption", "rank", "row", "column", "channel")}
    dims |= dict.fromkeys(("example_severity", "example_index"), ("corruption", "rank"))
    axes = {"corruption": ("shot_noise", "fog"), "severity": (3,)}
    pooling = dict.fromkeys(("example", "example_severity", "example_index"), ("examples",))
    return Measurement("corruptions", subject, values, dims, axes, pooling=pooling)


def test_worst_images_have_their_corruption_and_severity() -> None:
    (strip,) = made(corruptions("a"))
    assert [picture.lines for picture in strip.pictures] == [["shot noise", "severity 3"], ["shot noise", "severity 5"]]


def test_images_that_are_wrong_without_the_corruption_are_marked() -> None:
    one = corruptions("a")
    clean = np.ones(10)
    clean[9] = 0
    values, dims = {**one.values, "clean_correct": clean}, {**one.dims, "clean_correct": ("image",)}
    (strip,) = made(replace(one, values=values, dims=dims))
    assert strip.title == "Images that a misclassifies, each at the lowest severity where it is wrong"
    assert [picture.lines[2:] for picture in strip.pictures] == [[], ["clean: also wrong"]]


def test_pictures_are_in_the_page_and_small(tmp_path: Any) -> None:
    both = [calibration(who, [0.1, 3.0, 0.5], [0, 1, 2]) for who in "ab"]
    text = report(both, tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.count('<img src="data:image/jpeg;base64,') == 3
    assert max(len(each) for each in text.split('<img src="')[1:]) and all(
        len(each.partition('"')[0]) < 3000 for each in text.split('<img src="')[1:]
    )
