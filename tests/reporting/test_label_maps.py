"""Pictures of label maps: colours, and the pixels that a browser decodes."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import draw
from vitlab.reporting.label_maps import class_colour, coloured, picture_rows


def test_labels_have_the_colour_of_their_class_and_others_are_black() -> None:
    colours = coloured(np.array([[0, 2, 255, 3]]), 3)
    assert [tuple(each) for each in colours[0].tolist()] == [class_colour(0), class_colour(2), (0, 0, 0), (0, 0, 0)]


def test_pictures_are_lossless_and_in_order() -> None:
    random = np.random.default_rng(0)
    rows = [[random.integers(0, 256, (4, 6, 3)).astype(np.uint8) for _ in range(2)] for _ in range(3)]
    plot = picture_rows(rows, ["image", "truth"], ["road", "", "sky"])
    assert len(plot.layout.images) == 6 and [trace.name for trace in plot.data] == ["road", "sky"]
    for place, image in enumerate(plot.layout.images):
        file = io.BytesIO(base64.b64decode(image.source.partition(",")[2]))
        np.testing.assert_array_equal(np.array(Image.open(file)), rows[place // 2][place % 2])
    assert plot.layout.images[1].x > plot.layout.images[0].x + 1 and plot.layout.images[2].y < plot.layout.images[0].y


def test_figures_of_a_measurement_show_classes_and_pictures() -> None:
    """The title counts the right pixels: 3 of the 4 that are not ignored."""
    values = {
        "clean_miou": np.asarray(0.5),
        "clean_class_iou": np.array([0.75, 0.25]),
        "example_image": np.zeros((1, 1, 5, 3), dtype=np.uint8),
        "example_truth": np.array([[[0, 0, 1, 1, 255]]], dtype=np.uint8),
        "example_prediction": np.array([[[0, 0, 1, 0, 1]]], dtype=np.uint8),
    }
    places = ("example", "row", "column")
    dims = {"clean_miou": (), "clean_class_iou": ("class",), "example_image": (*places, "channel")}
    dims |= {"example_truth": places, "example_prediction": places}
    measurement = Measurement("segmentation_corruptions", "a", values, dims, {"class": ("road", "sky")})
    _, by_class, pictures = draw("segmentation_corruptions", [measurement])
    assert by_class.finding == "The class with the lowest IoU: sky for a (25.0 %)"
    assert "75.0 % for a" in pictures.finding and len(pictures.plot.layout.images) == 3
