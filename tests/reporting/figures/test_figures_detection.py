"""Figures of average precision: curves hold the measured numbers, pictures show boxes and masks where they are."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
from PIL import Image

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, draw
from vitlab.reporting.label_maps import class_colour
from vitlab.reporting.object_pictures import with_objects

CLASSES = ("cat", "dog")
SIDE = 64


def measurement(subject: str, shift: float = 0.0, examples: int = 1) -> Measurement:
    """Precision that falls with recall and threshold, and one example with a dog at (8, 16) to (40, 48)."""
    thresholds = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
    recalls = tuple(round(0.01 * step, 2) for step in range(101))
    precision = np.linspace(0.9 - shift, 0.1, 10)[:, None] * np.linspace(1, 0, 101)
    values: dict[str, np.ndarray] = {}
    dims: dict[str, tuple[str, ...]] = {}
    for kind in ("box", "mask"):
        values |= {f"{kind}_precision": precision, f"{kind}_ap_by_threshold": precision.mean(1)}
        values |= {f"{kind}_ap50_by_class": np.array([0.7 - shift, np.nan]), f"{kind}_ap": precision.mean()}
        values |= {f"{kind}_ap50": precision[0].mean(), f"{kind}_ap75": precision[5].mean()}
        dims |= {f"{kind}_precision": ("threshold", "recall"), f"{kind}_ap_by_threshold": ("threshold",)}
        dims |= {f"{kind}_ap50_by_class": ("class",)}
    if examples:
        masks = np.zeros((1, SIDE, SIDE), dtype=np.uint8)
        masks[0, 16:48, 8:40] = 1
        boxes = np.full((1, 3, 4), np.nan)
        boxes[0, 0] = (8, 16, 40, 48)
        values |= {"example_image": np.full((1, SIDE, SIDE, 3), 100, dtype=np.uint8)}
        dims |= {"example_image": ("example", "row", "column", "channel")}
        for kind in ("true", "predicted"):
            values |= {f"example_{kind}_boxes": boxes, f"example_{kind}_masks": masks}
            values |= {
                f"example_{kind}_labels": np.array([[2, 0, 0]]),
                f"example_{kind}_scores": np.array([[0.8, 0, 0]]),
            }
            dims |= {f"example_{kind}_boxes": ("example", "object", "corner")}
            dims |= {f"example_{kind}_masks": ("example", "row", "column")}
            dims |= {f"example_{kind}_{name}": ("example", "object") for name in ("labels", "scores")}
    axes = {"threshold": thresholds, "recall": recalls, "class": CLASSES}
    return Measurement("average_precision", subject, values, {**dict.fromkeys(values, ()), **dims}, axes)


def figures(*measurements: Measurement) -> list[Figure]:
    found = [figure for figure in draw("average_precision", measurements) if isinstance(figure, Figure)]
    for figure in found:
        json.loads(figure.plot.to_json())
    return found


def test_curves_hold_the_numbers() -> None:
    one, two = measurement("plain"), measurement("with CB", 0.2)
    recall, overlap, by_class, pictures = figures(one, two)
    assert "45" in recall.finding and "with CB" in recall.finding
    lines = {(trace.name, trace.xaxis): trace for trace in recall.plot.data}
    np.testing.assert_allclose(lines["with CB, overlap 0.5", "x2"].y, 100 * two.values["mask_precision"][0])
    np.testing.assert_allclose(lines["plain, overlap 0.75", "x"].y, 100 * one.values["box_precision"][5])
    np.testing.assert_allclose(overlap.plot.data[0].y, 100 * one.values["box_ap_by_threshold"])
    assert overlap.paper == "CB Table 7"
    assert "cat for plain (70.0 %), cat for with CB (50.0 %)" in by_class.finding
    assert "1 for plain, 1 for with CB; they have 1 objects" in pictures.finding
    assert [trace.name for trace in pictures.plot.data] == ["dog"]  # the legend lists what is shown


def test_pictures_show_the_box_and_the_mask() -> None:
    picture = with_objects(measurement("plain"), 0, "predicted", CLASSES)
    assert picture.shape == (2 * SIDE, 2 * SIDE, 3)
    colour = np.array(class_colour(1))
    assert (picture[80, 16] == colour).all()  # left side of the box, doubled
    np.testing.assert_allclose(picture[80, 60], 0.55 * 100 + 0.45 * colour, atol=1)
    assert (picture[10, 10] == 100).all()
    source = figures(measurement("plain"))[-1].plot.layout.images[0].source
    stored = np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))))
    np.testing.assert_array_equal(stored, with_objects(measurement("plain"), 0, "true", CLASSES))


def test_without_examples_there_are_no_pictures() -> None:
    assert len(figures(measurement("plain", examples=0))) == 3
