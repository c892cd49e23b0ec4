"""One picture of test images of CamVid, their label maps and the predictions of each variant."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from evidence.finetuning_results import ARMS
from vitlab.reporting.label_maps import class_colour, coloured

__all__ = ["scenes"]

GAP, HEAD, LEGEND, MARGIN = 6, 24, 56, 8
INK, PAPER = (27, 31, 36), (255, 255, 255)


def scenes(folder: Path, seed: int = 0) -> Image.Image:
    """Returns a row per scene: image, truth and the prediction of each variant, with a legend of the classes.

    Args:
        folder: results of `studies/finetune_camvid.py`; those of its first seed hold examples.
        seed: the first seed.
    """
    runs = {arm: json.loads((folder / f"{arm}-{seed}.json").read_text(encoding="utf-8")) for arm in ARMS}
    names = runs["plain"]["cityscapes_c"]["axes"]["class"]
    first = runs["plain"]["pictures"]
    truth = np.array(first["example_truth"])
    if any(not np.array_equal(truth, run["pictures"]["example_truth"]) for run in runs.values()):
        raise ValueError(f"the runs of {folder} hold other scenes")
    columns = {
        "image": np.array(first["example_image"], dtype=np.uint8),
        "truth": np.stack([coloured(each, len(names)) for each in truth]),
        **{title: _predictions(runs[arm]["pictures"], len(names)) for arm, title in ARMS.items()},
    }
    return _sheet(columns, names)


def _predictions(pictures: Mapping[str, Any], classes: int) -> np.ndarray:
    return np.stack([coloured(np.array(each), classes) for each in pictures["example_prediction"]])


def _sheet(columns: Mapping[str, np.ndarray], names: Sequence[str]) -> Image.Image:
    rows, height, width = next(iter(columns.values())).shape[:3]
    size = (2 * MARGIN + len(columns) * (width + GAP) - GAP, MARGIN + HEAD + rows * (height + GAP) + LEGEND)
    sheet = Image.new("RGB", size, PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    for column, (title, pictures) in enumerate(columns.items()):
        x = MARGIN + column * (width + GAP)
        draw.text((x + width / 2, MARGIN + 8), title, INK, font, anchor="mm")
        for row, picture in enumerate(pictures):
            sheet.paste(Image.fromarray(picture), (x, MARGIN + HEAD + row * (height + GAP)))
    _legend(draw, font, [*names, "not labelled"], size)
    return sheet


def _legend(draw: ImageDraw.ImageDraw, font: Any, names: Sequence[str], size: tuple[int, int]) -> None:
    """Draws the classes in two rows; pixels without a label are black."""
    per_row = -(-len(names) // 2)
    step = (size[0] - 2 * MARGIN) / per_row
    for index, name in enumerate(names):
        x, y = MARGIN + index % per_row * step, size[1] - LEGEND + 6 + index // per_row * 24
        colour = class_colour(index) if index < len(names) - 1 else (0, 0, 0)
        draw.rectangle((x, y, x + 16, y + 16), fill=colour)
        draw.text((x + 24, y + 8), name, INK, font, anchor="lm")
