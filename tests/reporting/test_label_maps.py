"""Pictures of label maps: colours, and the pixels that a browser decodes."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from vitlab.reporting.label_maps import class_colour, coloured, picture_rows


def test_labels_have_the_colour_of_their_class_and_others_are_black() -> None:
    colours = coloured(np.array([[0, 2, 255, 3]]), 3)
    assert [tuple(each) for each in colours[0].tolist()] == [class_colour(0), class_colour(2), (0, 0, 0), (0, 0, 0)]


def test_pictures_are_lossless_and_in_their_places() -> None:
    random = np.random.default_rng(0)
    rows = [[random.integers(0, 256, (4, 6, 3)).astype(np.uint8) for _ in range(2)] for _ in range(3)]
    plot = picture_rows(rows, ["image", "truth"], ["road", "", "sky"])
    assert len(plot.layout.images) == 6 and [trace.name for trace in plot.data] == ["road", "sky"]
    for place, image in enumerate(plot.layout.images):
        file = io.BytesIO(base64.b64decode(image.source.partition(",")[2]))
        np.testing.assert_array_equal(np.array(Image.open(file)), rows[place // 2][place % 2])
    assert plot.layout.images[1].x > plot.layout.images[0].x + 1 and plot.layout.images[2].y < plot.layout.images[0].y
